"""How much may be in memory at once."""

import threading

import pytest

from app.codec.memory_budget import MemoryBudget
from app.errors import Unavailable
from testing.clients import in_parallel

_LONG_S = 60


def test_nobody_gets_more_than_there_is():
    """Who finds too little left, and has no patience, is told when to come again."""
    budget = MemoryBudget(10, 0, "large pictures")
    with budget.reserve(6), budget.reserve(4):
        with (
            pytest.raises(Unavailable, match="too many large pictures") as raised,
            budget.reserve(1),
        ):
            pass
        assert raised.value.status == 503
    with budget.reserve(10):
        pass


def test_a_share_comes_back_after_an_error():
    """A picture that turns out to be broken does not keep its share."""
    budget = MemoryBudget(10, 0, "large pictures")
    with pytest.raises(ValueError, match="broken"), budget.reserve(10):
        raise ValueError("broken")
    with budget.reserve(10):
        pass


@pytest.mark.parametrize(
    ("pixels", "calls"), [(4_000_000, 0), (4_000_001, 1)], ids=["small", "large"]
)
def test_memory_of_a_large_picture_goes_back(monkeypatch, pixels, calls):
    """The system has the memory of a large picture again, once it is done with."""
    given_back = []
    monkeypatch.setattr(
        "app.codec.memory_budget.give_back", lambda: given_back.append(1)
    )
    with MemoryBudget(pixels, 0, "large pictures").reserve(pixels):
        assert not given_back
    assert len(given_back) == calls


def test_who_waits_is_woken(monkeypatch):
    """A share that comes back goes to whoever waits for it."""
    waits, done = threading.Event(), threading.Event()

    class Told(threading.Condition):
        def wait(self, timeout=None):
            waits.set()
            return super().wait(timeout)

    monkeypatch.setattr("app.codec.memory_budget.threading.Condition", Told)
    budget = MemoryBudget(10, _LONG_S, "large pictures")

    def work():
        with budget.reserve(5):
            done.set()

    thread = threading.Thread(target=work, daemon=True)
    with budget.reserve(10):
        thread.start()
        assert waits.wait(10)
        assert not done.is_set()
    assert done.wait(10)
    thread.join()


def test_who_waits_gets_a_share_in_the_end():
    """Of many who come together all get their share, and never too many at once."""
    budget = MemoryBudget(10, _LONG_S, "large pictures")
    held, most, counting = 0, 0, threading.Lock()

    def work(place: int) -> None:
        nonlocal held, most
        share = 1 + place % 10
        for _ in range(20):
            with budget.reserve(share):
                with counting:
                    held += share
                    most = max(most, held)
                with counting:
                    held -= share

    in_parallel(work, 20)
    assert held == 0
    assert most == 10

"""The bound on the memory that decoding takes."""

import threading

import pytest

from app.codec.memory_budget import MemoryBudget
from app.errors import Unavailable
from testing.clients import in_parallel

_LONG_S = 60


def test_exhausted_budget_is_a_503():
    """A reservation beyond the budget is a 503 after the timeout."""
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


def test_error_releases_the_reservation():
    """A damaged image does not keep its part of the budget."""
    budget = MemoryBudget(10, 0, "large pictures")
    with pytest.raises(ValueError, match="broken"), budget.reserve(10):
        raise ValueError("broken")
    with budget.reserve(10):
        pass


@pytest.mark.parametrize(
    ("pixels", "calls"), [(4_000_000, 0), (4_000_001, 1)], ids=["small", "large"]
)
def test_memory_of_a_large_image_is_returned(monkeypatch, pixels, calls):
    """Freed memory is returned to the system after a large image only."""
    given_back = []
    monkeypatch.setattr(
        "app.codec.memory_budget.give_back", lambda: given_back.append(1)
    )
    with MemoryBudget(pixels, 0, "large pictures").reserve(pixels):
        assert not given_back
    assert len(given_back) == calls


def test_release_wakes_a_waiting_thread(monkeypatch):
    """A released amount goes to a thread that waits for it."""
    waits, done = threading.Event(), threading.Event()

    class Noted(threading.Condition):
        def wait(self, timeout=None):
            waits.set()
            return super().wait(timeout)

    monkeypatch.setattr("app.codec.memory_budget.threading.Condition", Noted)
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


def test_many_threads_never_exceed_the_budget():
    """All of many threads get their reservations, never too many at once."""
    budget = MemoryBudget(10, _LONG_S, "large pictures")
    held, most, counting = 0, 0, threading.Lock()

    def work(place: int) -> None:
        nonlocal held, most
        amount = 1 + place % 10
        for _ in range(20):
            with budget.reserve(amount):
                with counting:
                    held += amount
                    most = max(most, held)
                with counting:
                    held -= amount

    in_parallel(work, 20)
    assert held == 0
    assert most == 10

"""The bound on the memory that decoding takes."""

import threading
import weakref
from functools import partial

import pytest

from app.codec.memory_budget import MemoryBudget
from app.errors import Abandoned, BadInput, Late, Unavailable
from testing.clients import in_parallel
from testing.server import wait_until

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


@pytest.fixture
def waits(monkeypatch):
    """The threads that have begun to wait for a budget."""
    waits = set()

    class Noted(threading.Condition):
        def wait(self, timeout=None):
            waits.add(threading.current_thread())
            return super().wait(timeout)

    monkeypatch.setattr("app.codec.memory_budget.threading.Condition", Noted)
    return waits


def test_release_wakes_a_waiting_thread(waits):
    """A released amount goes to a thread that waits for it."""
    done = threading.Event()
    budget = MemoryBudget(10, _LONG_S, "large pictures")

    def work():
        with budget.reserve(5):
            done.set()

    thread = threading.Thread(target=work, daemon=True)
    with budget.reserve(10):
        thread.start()
        wait_until(lambda: thread in waits, 10)
        assert not done.is_set()
    assert done.wait(10)
    thread.join()


def test_disconnect_ends_the_wait_for_memory(waits):
    """A thread whose client disconnects stops waiting while others hold the budget."""
    budget = MemoryBudget(10, _LONG_S, "large pictures")
    disconnected, outcome = threading.Event(), []

    def check():
        if disconnected.is_set():
            raise Abandoned("the client disconnected")

    def work():
        try:
            with budget.reserve(5, check):
                pass
        except Abandoned as error:
            outcome.append(error)

    thread = threading.Thread(target=work, daemon=True)
    with budget.reserve(10):
        thread.start()
        wait_until(lambda: thread in waits, 10)
        disconnected.set()
        thread.join(10)
        assert len(outcome) == 1
    with budget.reserve(10):
        pass


def test_check_is_made_after_a_wait_that_succeeds(waits):
    """Memory that comes after the deadline is not used, and is free for others."""
    budget = MemoryBudget(10, _LONG_S, "large pictures")
    outcome, released = [], threading.Event()

    def check():
        if released.is_set():
            raise Late("the deadline passed")

    def work():
        try:
            with budget.reserve(5, check):
                outcome.append("reserved")
        except Late:
            outcome.append("late")

    thread = threading.Thread(target=work, daemon=True)
    with budget.reserve(10):
        thread.start()
        wait_until(lambda: thread in waits, 10)
        released.set()
    thread.join(10)
    assert outcome == ["late"]
    with budget.reserve(10):
        pass


def test_threads_that_wait_are_limited(waits):
    """One more than eight waiting threads is refused at once, with Retry-After."""
    budget = MemoryBudget(10, _LONG_S, "large pictures")

    def work():
        with budget.reserve(1):
            pass

    for _ in range(2):  # those that have waited do not count any more
        threads = [threading.Thread(target=work, daemon=True) for _ in range(8)]
        with budget.reserve(10):
            for thread in threads:
                thread.start()
            wait_until(partial(waits.issuperset, threads), 10)
            with pytest.raises(Unavailable, match="too many") as raised:
                _reserve(budget)
            assert raised.value.retry_after_s == 1
        for thread in threads:
            thread.join(10)
            assert not thread.is_alive()


def _reserve(budget):
    with budget.reserve(1):
        pass


class _Pixels:
    """Something that is decoded."""


def test_error_frees_what_was_decoded_before_the_budget(monkeypatch):
    """No variable of a function that raised an error outlives the reservation."""
    decoded = []
    alive_at_release = []

    class Noted(threading.Condition):
        def notify_all(self):
            alive_at_release.append([each() for each in decoded])
            super().notify_all()

    monkeypatch.setattr("app.codec.memory_budget.threading.Condition", Noted)
    budget = MemoryBudget(10, 0, "large pictures")

    def damaged():
        image = _Pixels()
        decoded.append(weakref.ref(image))
        raise ValueError("broken")

    def decode():
        image = _Pixels()
        decoded.append(weakref.ref(image))
        try:
            damaged()
        except ValueError:
            raise BadInput("damaged") from None

    with pytest.raises(BadInput) as raised, budget.reserve(10):
        decode()
    assert raised.value.__context__ is not None
    assert alive_at_release == [[None, None]]


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

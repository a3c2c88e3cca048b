"""ReturningClients: how soon closed-loop clients send their next requests."""

import pytest

from app.batching.returning_clients import ReturningClients


def _after(clients, rows, gap_s, *, waited=False, returned=None):
    """Answer a batch of so many rows, which then return, evenly apart."""
    now = clients.answered_at + 1.0
    clients.answered(rows, now, waited=waited)
    for place in range(rows if returned is None else returned):
        clients.arrived([(1, now + gap_s * (place + 1))])


def _learned(rows=8, gap_s=0.01, returned=None):
    """Return what twenty such batches teach."""
    clients = ReturningClients()
    for _ in range(20):
        _after(clients, rows, gap_s, returned=returned)
    return clients


def test_rows_that_have_not_returned_are_missing():
    """Of the rows answered last, those that have not arrived since are missing."""
    clients = ReturningClients()
    clients.answered(4, 10.0, waited=False)
    missing = [clients.missing()]
    for place in range(6):
        clients.arrived([(1, 10.1 + place)])
        missing.append(clients.missing())
    assert missing == [4, 3, 2, 1, 0, 0, 0]


def test_nearly_all_clients_are_awaited_and_then_the_others():
    """Of twenty, eighteen end a hold's first part, and the last two its second."""
    clients = ReturningClients()
    clients.answered(20, 10.0, waited=False)
    awaited = []
    for rows in (0, 5, 12, 1, 1):
        clients.arrived([(rows, 10.5)])
        awaited.append(clients.to_await())
    assert awaited == [18, 13, 1, 2, 1]


def test_job_that_was_made_before_the_batch_ended_returns_at_once():
    """It may be queued afterwards, and no time is negative."""
    clients = ReturningClients()
    clients.answered(1, 10.0, waited=False)
    clients.arrived([(1, 9.0)])
    assert clients.latest_return_s() == 0.0


@pytest.mark.parametrize(
    ("returned", "usual"), [(8, True), (7, False), (0, False)], ids=["8", "7", "0"]
)
def test_clients_usually_return_if_nine_of_ten_do(returned, usual):
    """The share of eight rows that returns before the next batch's end decides."""
    assert _learned(returned=returned).usually_return() is usual


def test_more_rows_take_longer_to_return():
    """The return time of 8 rows follows from those of 4 and 12 rows."""
    clients = ReturningClients()
    for _ in range(100):
        _after(clients, 4, 0.01)
        _after(clients, 12, 0.01)
    of_8 = clients.return_s(8)
    assert of_8 == pytest.approx((clients.return_s(4) + clients.return_s(12)) / 2)
    clients.answered(8, 1e6, waited=False)
    assert clients.latest_return_s() == pytest.approx(0.08, rel=0.1)


def test_clients_return_sooner_to_an_idle_engine():
    """Before any hold, seven tenths of the time beside a batch are expected."""
    clients = _learned()
    assert clients.return_s(8) == pytest.approx(0.7 * 0.08)
    assert clients.return_s(8) < clients.latest_return_s()


def test_return_times_of_holds_are_learned_and_slowly_forgotten():
    """Holds show how long a return takes; without holds that fades in 1,000 batches."""
    clients = _learned()
    for _ in range(20):
        _after(clients, 8, 0.002, waited=True)
    assert clients.return_s(8) == pytest.approx(0.016, rel=0.15)
    for _ in range(1000):
        _after(clients, 8, 0.01)
    assert clients.return_s(8) == pytest.approx(0.7 * 0.08, rel=0.15)


def test_batch_whose_clients_do_not_all_return_teaches_no_time():
    """A batch whose clients do not all return leaves the expected time as it was."""
    clients = _learned()
    before_s = clients.return_s(8)
    _after(clients, 8, 0.1, returned=7)
    clients.answered(8, clients.answered_at + 1, waited=False)
    assert clients.return_s(8) == pytest.approx(before_s, rel=0.01)


def test_clients_that_return_slower_this_time_get_longer():
    """After 4 of 8 took 0.2 s to return, the last one gets 0.4 s."""
    clients = _learned()
    _after(clients, 8, 0.05, returned=4)
    assert clients.latest_return_s() == pytest.approx(0.4)


def test_last_few_clients_get_eight_gaps():
    """With 19 of 20 back the last gets eight times the gap between two of them."""
    clients = _learned(rows=20, gap_s=0.03)
    _after(clients, 20, 0.01, returned=19)
    assert clients.nearly_all_returned()
    assert clients.latest_return_s() == pytest.approx(0.19 + 8 * 0.01)

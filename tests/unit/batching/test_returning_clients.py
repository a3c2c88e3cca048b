"""Returns: how soon those who were answered send again."""

import pytest

from app.batching.returning_clients import ReturningClients


def _after(returns, rows, gap_s, *, waited, batch_s=1.0, back=None):
    """One batch of so many rows is answered, and so many come back, evenly apart."""
    now = returns.answered_at + batch_s
    returns.answered(rows, now, waited=waited)
    for place in range(rows if back is None else back):
        returns.arrived(1, now + gap_s * (place + 1))
    return now


def test_who_is_not_back_is_missing():
    """Of those who were answered, as many are missing as have not come since."""
    returns = ReturningClients()
    returns.answered(4, 10.0, waited=False)
    missing = [returns.missing()]
    for place in range(6):
        returns.arrived(1, 10.1 + place)
        missing.append(returns.missing())
    assert missing == [4, 3, 2, 1, 0, 0, 0]


@pytest.mark.parametrize(
    ("back", "usual"), [(8, True), (7, False), (0, False)], ids=["all", "7 of 8", "0"]
)
def test_it_is_usual_where_nearly_all_come_back(back, usual):
    """They are usual where nine of ten came back before the next batch's end."""
    returns = ReturningClients()
    for _ in range(20):
        _after(returns, 8, 0.01, waited=False, back=back)
    assert returns.usually_return() is usual


def test_more_rows_take_longer_to_come_back():
    """From batches of 4 and 12 rows it knows when 8 are back."""
    returns = ReturningClients()
    for _ in range(100):
        _after(returns, 4, 0.01, waited=False)
        _after(returns, 12, 0.01, waited=False)
    of_8 = returns.return_s(8)
    assert of_8 == pytest.approx((returns.return_s(4) + returns.return_s(12)) / 2)
    returns.answered(8, 1e6, waited=False)
    assert returns.latest_return_s() == pytest.approx(0.08, rel=0.1)


def test_they_are_expected_sooner_while_the_engine_is_idle():
    """Before any was waited for, seven tenths of the time beside a batch are taken."""
    returns = ReturningClients()
    for _ in range(20):
        _after(returns, 8, 0.01, waited=False)
    assert returns.return_s(8) == pytest.approx(0.7 * 0.08)
    assert returns.return_s(8) < returns.latest_return_s()


def test_what_waiting_shows_is_learnt_and_slowly_forgotten():
    """Waits show how long it takes; without them that fades within 1,000 batches."""
    returns = ReturningClients()
    for _ in range(20):
        _after(returns, 8, 0.01, waited=False)
    for _ in range(20):
        _after(returns, 8, 0.002, waited=True)
    assert returns.return_s(8) == pytest.approx(0.016, rel=0.15)
    for _ in range(1000):
        _after(returns, 8, 0.01, waited=False)
    assert returns.return_s(8) == pytest.approx(0.7 * 0.08, rel=0.15)


def test_who_stays_away_teaches_nothing_of_times():
    """A batch whose clients do not all come back leaves the expected time as it was."""
    returns = ReturningClients()
    for _ in range(20):
        _after(returns, 8, 0.01, waited=False)
    before_s = returns.return_s(8)
    _after(returns, 8, 0.1, waited=False, back=7)
    returns.answered(8, returns.answered_at + 1, waited=False)
    assert returns.return_s(8) == pytest.approx(before_s, rel=0.01)


def test_who_comes_slower_this_time_is_given_longer():
    """Where 4 of 8 are back after 0.2 s, the last is expected after 0.4 s at latest."""
    returns = ReturningClients()
    for _ in range(20):
        _after(returns, 8, 0.01, waited=False)
    now = _after(returns, 8, 0.05, waited=False, back=4)
    assert returns.answered_at == now
    assert returns.latest_return_s() == pytest.approx(0.4)


def test_the_last_few_are_not_waited_for_as_long():
    """With 19 of 20 back the last is given eight times what lay between two of them."""
    returns = ReturningClients()
    for _ in range(20):
        _after(returns, 20, 0.03, waited=False)
    _after(returns, 20, 0.01, waited=False, back=19)
    assert returns.nearly_all_returned()
    assert returns.latest_return_s() == pytest.approx(0.19 + 8 * 0.01)

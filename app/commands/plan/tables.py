"""The plan as text: tables, bars, and dollars a month."""

import math
from collections.abc import Iterator

from app.commands.plan.search import Fewest, OneServer
from app.commands.plan.simulation import Load

# 30 days, as cloud providers' examples and "Improve ML model performance using
# TensorFlow Serving" calculate.
HOURS_A_MONTH = 720
_BAR_CHARS = 40


def dollars_a_month(servers: int, price: float) -> str:
    """Return what servers cost, at a price for a server and an hour."""
    return f"${servers * price * HOURS_A_MONTH:,.0f}"


def one_row_at_a_time(load: Load, row_s: float, price: float | None) -> str:
    """Return how many servers a load needs without batches, at the least."""
    servers = max(math.ceil(round(load.rate_at(row_s) * row_s, 9)), 1)
    cost = "" if price is None else f", {dollars_a_month(servers, price)} a month"
    return (
        f"without batching a server answers {1 / row_s:.4g} requests/s: at least "
        f"{_servers(servers)}{cost}"
    )


def by_servers(fewest: Fewest, price: float | None) -> Iterator[str]:
    """Yield a table of outcomes by servers; a star marks the fewest that hold."""
    times = "".join(f"{name:>10}" for name in ("mean ms", "p50 ms", "p95 ms"))
    cost = "" if price is None else f"{'$ a month':>14}"
    yield (
        f" servers{times}       ±    p99 ms  requests/s  rows a batch   busy  refused"
        f"{cost}"
    )
    for servers, seen in fewest.tried.items():
        mark = "*" if servers == fewest.servers else " "
        cost = "" if price is None else f"{dollars_a_month(servers, price):>14}"
        mean, p50, p95, p99 = (
            f"{1000 * each:10.1f}"
            for each in (seen.mean_s, seen.p50_s, seen.p95_s, seen.p99_s)
        )
        times = f"{mean}{p50}{p95}{seen.uncertainty:8.1%}{p99}"
        yield (
            f"{mark}{servers:7,}{times}{seen.rate:12,.1f}{seen.batch_rows:14.1f}"
            f"{seen.busy:7.0%}{seen.refused:9.2%}{cost}"
        )


def fewest_words(fewest: Fewest, limit_s: float, price: float | None) -> str:
    """Return a sentence that says how many servers hold the limit, and their cost."""
    if fewest.servers is None:
        return f"none of these numbers of servers holds a p95 of {_ms(limit_s)}"
    verb = "holds" if fewest.servers == 1 else "hold"
    cost = ""
    if price is not None:
        cost = (
            f": {dollars_a_month(fewest.servers, price)} a month "
            f"({HOURS_A_MONTH} hours at ${price:g})"
        )
    return f"{_servers(fewest.servers)} {verb} a p95 of {_ms(limit_s)}{cost}"


def curve(one: OneServer, limit_s: float) -> Iterator[str]:
    """Yield what one server holds, and its p95 by load as bars."""
    if one.most is None:
        yield f"one server holds a p95 of {_ms(limit_s)} under no load"
        return
    yield f"one server holds a p95 of {_ms(limit_s)} up to {one.most}"
    longest_s = max(min(seen.p95_s, 2 * limit_s) for seen in one.curve.values())
    width = max(len(str(load)) for load in one.curve)
    for load, seen in one.curve.items():
        chars = round(_BAR_CHARS * min(seen.p95_s / longest_s, 1.0))
        over = ">" if seen.p95_s > longest_s else ""
        refused = f"  {seen.refused:.1%} refused" if seen.refused else ""
        bar = "#" * chars + over
        yield f"  {load!s:>{width}}  p95 {1000 * seen.p95_s:9.1f} ms  {bar}{refused}"


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:,.6g} ms"


def _servers(number: int) -> str:
    return f"{number:,} {'server' if number == 1 else 'servers'}"

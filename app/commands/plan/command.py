"""`models plan`: how many servers hold a limit of response time, and their cost."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click

from app.commands.atomic_write import atomic_write
from app.commands.options import FiniteRange, version_option
from app.commands.plan import plot, tables
from app.commands.plan.batch_seconds import BatchSeconds
from app.commands.plan.measured import measured
from app.commands.plan.search import Search
from app.commands.plan.server import ServerPlan
from app.commands.plan.simulation import SPREADS, Load
from app.engines.batch_sizes import batch_sizes
from app.errors import SettingsError
from app.settings import Settings

_DAY_S, _MOST = 86_400, 10_000_000
_MS = FiniteRange(min=0, max=1000 * _DAY_S)
# Of a batch; shorter ones would only make the simulation long.
_LEAST_MS = 0.001
_POSITIVE = FiniteRange(min=0, min_open=True, max=_MOST)


class _ThinkTime(click.ParamType[Any]):
    """Seconds from an answer to a user's next request: 2, or 1-3."""

    name = "seconds"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, float]:
        """Return the least and the most seconds.

        Raises:
            click.BadParameter: they are no numbers from 0 on, or in the wrong order.
        """
        if isinstance(value, tuple):
            return value
        least, _, most = str(value).partition("-")
        number = FiniteRange(min=0, max=_DAY_S)
        try:
            seconds = [
                number.convert(each, param, ctx) for each in (least, most or least)
            ]
        except click.BadParameter:
            self.fail(f"{value!r}: expected seconds, such as 2 or 1-3.", param, ctx)
        if seconds[0] > seconds[1]:
            self.fail(f"{value!r}: the least comes first, as in 1-3.", param, ctx)
        return seconds[0], seconds[1]


_THINK_HELP = "Seconds from an answer to a user's next request: 2, or 1-3."
_PARAMETERS = (
    click.Argument(["name"], required=False),
    click.Option(["--base-ms"], type=_MS, help="Of a batch, in place of NAME."),
    click.Option(["--per-row-ms"], type=_MS, help="With --base-ms."),
    click.Option(["--users"], type=click.IntRange(1, _MOST)),
    click.Option(["--think"], type=_ThinkTime(), help=_THINK_HELP),
    click.Option(["--rate"], type=_POSITIVE, help="Requests/s, in place of --users."),
    click.Option(["--p95-ms"], type=_POSITIVE, required=True),
    click.Option(["--price"], type=_POSITIVE, help="Dollars for a server and an hour."),
    click.Option(
        ["--spread"], type=click.Choice(SPREADS), default=SPREADS[0], show_default=True
    ),
    click.Option(
        ["--overhead-ms"],
        type=_MS,
        default=0.5,
        show_default=True,
        help="Of a request besides its batch: HTTP, decoding, encoding.",
    ),
    click.Option(
        ["--plot", "picture"],
        type=click.Path(dir_okay=False, writable=True, path_type=Path),
        help="A PNG of p95 by the load of one server; wants matplotlib.",
    ),
)


def plan_command(settings: Settings) -> click.Command:
    """Return the command `plan`."""

    @click.command("plan", params=list(_PARAMETERS))
    @version_option
    def plan(**options: Any) -> None:
        """Say how many servers hold a p95 of P95_MS, and what they cost.

        The times of batches are measured here, or given by BASE_MS and PER_ROW_MS.
        Basket's own queue and release rule run in virtual time.
        """
        _plan(settings, options)

    return plan


def _plan(settings: Settings, options: dict[str, Any]) -> None:
    load = _load(options)
    plot.check_possible(options["picture"])
    limit_s, price = options["p95_ms"] / 1000, options["price"]
    plan = _server(settings, options)
    if plan.batches.of(1) + plan.overhead_s > limit_s:
        raise click.ClickException(
            f"no number of servers can hold a p95 of {options['p95_ms']:g} ms: a batch "
            f"of one row takes {1000 * plan.batches.of(1):.4g} ms, and a request "
            f"{options['overhead_ms']:g} ms besides"
        )
    timeout_ms = settings.request_timeout_ms
    if 1000 * plan.batches.of(1) > timeout_ms:
        raise click.ClickException(
            "no number of servers can answer: a batch of one row takes "
            f"{1000 * plan.batches.of(1):.6g} ms, and BASKET_REQUEST_TIMEOUT_MS is "
            f"{timeout_ms}"
        )
    for line in _introduction(plan, load, options["spread"], price):
        click.echo(line)
    search = Search(plan, options["spread"], limit_s, partial(click.echo, err=True))
    fewest = search.fewest(load)
    one = search.one_server(load)
    lines = [*tables.by_servers(fewest, price), ""]
    lines += [tables.fewest_words(fewest, limit_s, price), ""]
    lines += tables.curve(one, limit_s)
    click.echo("\n".join(lines))
    if options["picture"] is not None:
        with atomic_write(options["picture"]) as file:
            plot.draw(one, limit_s, file)


def _load(options: dict[str, Any]) -> Load:
    """Return the load of all servers.

    Raises:
        click.UsageError: not exactly one of --users and --rate.
    """
    users, rate, think_s = options["users"], options["rate"], options["think"]
    if (users is None) == (rate is None):
        raise click.UsageError("give --users or --rate, and not both")
    if rate is not None:
        if think_s is not None:
            raise click.UsageError("--think is of --users, not of --rate")
        return Load(rate=rate)
    if think_s is None:
        raise click.UsageError("--users wants --think, such as 1-3; 0: none")
    return Load(users=users, think_s=think_s)


def _server(settings: Settings, options: dict[str, Any]) -> ServerPlan:
    """Return what a server is like: of a model that is measured, or as given.

    Raises:
        click.UsageError: not exactly one of NAME and --base-ms.
        ModelLoadError: the model can't be loaded.
        SettingsError: batching is off.
    """
    name, base_ms, per_row_ms = (
        options["name"],
        options["base_ms"],
        options["per_row_ms"],
    )
    if not settings.batching:
        raise SettingsError("BASKET_BATCHING=off: the plan is of servers that batch")
    if (name is None) == (base_ms is None):
        raise click.UsageError("give NAME, or --base-ms and --per-row-ms, and not both")
    if base_ms is None and per_row_ms is not None:
        raise click.UsageError("--per-row-ms goes with --base-ms")
    overhead_s = options["overhead_ms"] / 1000
    if base_ms is None:
        return ServerPlan(*measured(settings, name, options["version"]), overhead_s)
    by_size = {
        size: (base_ms + (per_row_ms or 0.0) * size) / 1000
        for size in batch_sizes(settings.max_batch_size)
    }
    if 1000 * by_size[1] < _LEAST_MS:
        raise click.UsageError(
            f"a batch takes some time, {_LEAST_MS} ms or more: --base-ms or "
            "--per-row-ms"
        )
    return ServerPlan(settings, BatchSeconds(by_size, settings), overhead_s)


def _introduction(
    plan: ServerPlan, load: Load, spread: str, price: float | None
) -> Iterator[str]:
    yield ""
    least_s, most_s = load.think_s
    thinking = f" that think {least_s:g} to {most_s:g} s" if load.users else ""
    yield f"{load}{thinking}; over servers: {spread}"
    yield tables.one_row_at_a_time(load, plan.batches.of(1), price)
    yield ""

"""The page on a GPU, in Markdown."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.gpu.run import LARGEST, Found
from bench.peers.cells import Cell
from bench.peers.tables import table

PLOT_FILE = "gpu.png"


@dataclass(frozen=True)
class About:
    """What made the figures: `date` is ISO 8601, `machine` maps words to what is there.

    `memory_mib` is that of the device; `trial`: the figures mean nothing.
    """

    command: str
    date: str
    machine: dict[str, str]
    memory_mib: int
    trial: bool


def markdown(found: Found, about: About) -> str:
    """The whole page."""
    return "\n".join(_lines(found, about))


def _lines(found: Found, about: About) -> Iterator[str]:
    yield "# On a GPU\n"
    if about.trial:
        yield "**A trial run, which shows that the command works: no figures.**\n"
    yield f"`{about.command}`, on {about.date}. All of this page is written by it.\n"
    yield from table(("", ""), about.machine.items())
    yield ""
    yield (
        f"The model shows a row of 64 numbers to a recurrent layer {found.steps:,} "
        f"times. Each time all its weights are read, {found.weights_mib:,.3g} MiB of "
        "float32, for a batch of any size: a large model that is read once does the "
        f"same with more weights. One row takes {found.row_ms:.1f} ms. Basket runs it "
        "with `BASKET_ENGINE=jax`, and the clients are on the same machine.\n"
    )
    yield f"![Response time by users, and rows/s by rows in a batch]({PLOT_FILE})\n"
    yield "## Users\n"
    yield (
        "Users think for 1 to 3 s between an answer and the next request of one row. "
        "`naive` is `BASKET_BATCHING=off gunicorn wsgi:app`, `batching` is "
        "`gunicorn wsgi:app --threads=68`. A request has failed if no answer came, or "
        "one with another status than 200, or one that the model itself does not "
        "give.\n"
    )
    times = ("mean (s)", "95th percentile (s)", "requests/s")
    heading = ("server", "users", *times, "rows in a batch", "requests", "failed")
    yield from table(heading, map(_cell, found.cells))
    yield ""
    yield "## Sizes of a batch\n"
    yield "The engine alone, in a process of its own, without a server.\n"
    yield from table(
        ("rows", "a batch (ms)", "rows/s", "x one row"), _sizes(found.rates)
    )
    yield ""
    yield "## Memory\n"
    yield (
        "How much more of the card's memory is in use when the server has given its "
        f"first answer, and when it has answered a batch of {LARGEST} rows. Nothing "
        "else ran on the card. The fraction is `BASKET_GPU_MEMORY_FRACTION`, which JAX "
        "takes at once; without it JAX takes memory as it needs it.\n"
    )
    rows = [
        (
            each.server,
            f"{each.ready_mib:,}",
            f"{each.full_mib:,}",
            f"{each.full_mib / about.memory_mib:.0%}",
        )
        for each in found.memory
    ]
    yield from table(
        ("server", "first answer (MiB)", f"{LARGEST} rows (MiB)", "of the card"), rows
    )
    yield ""


def _cell(cell: Cell) -> tuple[str, ...]:
    failed = cell.errors + cell.not_2xx + cell.wrong
    sent = cell.errors + cell.not_2xx + cell.asked
    batch = "1" if cell.batch_rows is None else f"{cell.batch_rows:.1f}"
    times = (f"{cell.mean_s:.3f}", f"{cell.p95_s:.3f}", f"{cell.rate:.2f}")
    return (cell.server, str(cell.clients.count), *times, batch, str(sent), str(failed))


def _sizes(rates: Sequence[tuple[int, float]]) -> Iterator[tuple[str, ...]]:
    (_, alone), *_ = rates
    for rows, rate in rates:
        took_ms = rows / rate * 1000
        yield str(rows), f"{took_ms:.1f}", f"{rate:,.1f}", f"{rate / alone:.1f}"

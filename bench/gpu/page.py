"""The page docs/gpu.md and its plot."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.figures import Cell
from bench.gpu.run import LARGEST, Found
from bench.report import table

_PLOT_FILE = "gpu.png"
_SIZE_INCHES = (9.6, 4.2)


@dataclass(frozen=True)
class About:
    """Where figures come from: command, ISO date, machine, MiB of the device.

    `trial`: the figures mean nothing.
    """

    command: str
    date: str
    machine: dict[str, str]
    memory_mib: int
    trial: bool


def write(found: Found, about: About, folder: Path) -> None:
    """Write gpu.md and its plot into `folder`, and print the page."""
    folder.mkdir(parents=True, exist_ok=True)
    text = markdown(found, about)
    (folder / "gpu.md").write_text(text)
    title = f"GPU: {about.machine['GPU']}; a model of {found.row_ms:.0f} ms for one row"
    _draw(found, title, folder / _PLOT_FILE)
    print(f"\n{text}\nthe page is {folder / 'gpu.md'}")


def markdown(found: Found, about: About) -> str:
    """Return the whole page."""
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
    yield f"![Response time by users, and rows/s by rows in a batch]({_PLOT_FILE})\n"
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
    seen = cell.seen
    sent = seen.errors + seen.not_2xx + seen.checked
    batch = "1" if seen.batch_rows is None else f"{seen.batch_rows:.1f}"
    return (
        *(cell.server, str(cell.clients.count), f"{seen.mean_s:.3f}"),
        *(f"{seen.p95_s:.3f}", f"{seen.rate:.2f}", batch, str(sent), str(seen.failed)),
    )


def _sizes(rates: Sequence[tuple[int, float]]) -> Iterator[tuple[str, ...]]:
    (_, alone), *_ = rates
    for rows, rate in rates:
        took_ms = rows / rate * 1000
        yield str(rows), f"{took_ms:.1f}", f"{rate:,.1f}", f"{rate / alone:.1f}"


def _draw(found: Found, title: str, file: Path) -> None:
    """Draw response time by users, and rows/s by rows in a batch."""
    # Without matplotlib the tests of the page still run.
    from matplotlib import rc_context  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    from bench import plots  # noqa: PLC0415

    with rc_context(plots.STYLE):
        figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
        left, right = figure.subplots(1, 2)
        for place, server in enumerate(dict.fromkeys(c.server for c in found.cells)):
            mine = [cell for cell in found.cells if cell.server == server]
            users = [cell.clients.count for cell in mine]
            color = plots.COLORS[3 * place]
            means = [cell.seen.mean_s for cell in mine]
            left.plot(users, means, "o-", color=color, label=server)
            p95 = [cell.seen.p95_s for cell in mine]
            label = f"{server}, 95th percentile"
            left.plot(users, p95, "o:", color=color, label=label)
        left.set_title("Response time")
        counts = sorted({cell.clients.count for cell in found.cells})
        plots.log_axis(left, counts, "users")
        plots.log_seconds(left)
        left.set_ylabel("seconds (log scale)")
        left.legend()
        sizes, rates = zip(*found.rates, strict=True)
        right.plot(sizes, rates, "o-", color=plots.COLORS[4])
        right.set_title("The engine alone")
        plots.log_axis(right, sizes, "rows in a batch")
        plots.from_zero(right, "rows/s")
        figure.suptitle(title, x=0.01, ha="left", fontsize=10.5)
        figure.savefig(file)

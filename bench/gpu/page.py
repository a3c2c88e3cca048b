"""The page docs/gpu.md and its plot."""

from pathlib import Path

from bench.figures import Cell
from bench.gpu.device import Device
from bench.gpu.run import LARGEST, Found, Memory
from bench.report import table

_PLOT_FILE = "gpu.png"
_SIZE_INCHES = (9.6, 4.2)


_PAGE = """\
# On a GPU

{trial}{header} This page is written by the command.

The model feeds a row of 64 numbers to a recurrent layer {found.steps:,} times. Each \
step reads all weights, {found.weights_mib:,.3g} MiB of float32, for a batch of any \
size. One row takes {found.row_ms:.1f} ms. Basket runs it with `BASKET_ENGINE=jax`, \
with the clients on the same machine.

![Response time by users, and rows/s by rows in a batch]({plot})

## Users

Users think for 1 to 3 s between an answer and the next request of one row. `naive` is \
`BASKET_BATCHING=off gunicorn wsgi:app`, `batching` is `gunicorn wsgi:app \
--threads=68`. A request has failed if it got no answer, another status than 200, or \
another answer than the model's.

{users}

## Batch sizes

The engine alone, in a process of its own, without a server.

{sizes}

## Memory

Memory of the card that is in use after the server's first answer and after a batch of \
{largest} rows, compared with before. Nothing else ran on the card. The fraction is \
`BASKET_GPU_MEMORY_FRACTION`, which JAX allocates at once; without it JAX allocates \
memory as it needs it.

{memory}
"""
_TRIAL = "**A trial run, which shows that the command works: no figures.**\n\n"


def markdown(found: Found, header: str, memory_mib: int, *, trial: bool) -> str:
    """Return the page; `memory_mib` is the device's, `header` says how it was made."""
    users = (
        *("server", "users", "mean (s)", "95th percentile (s)", "requests/s"),
        *("rows in a batch", "requests", "failed"),
    )
    memory = ("server", "first answer (MiB)", f"{LARGEST} rows (MiB)", "of the card")
    sizes = ("rows", "a batch (ms)", "rows/s", "x one row")
    alone = found.rates[0][1]
    return _PAGE.format(
        found=found,
        header=header,
        plot=_PLOT_FILE,
        trial=_TRIAL if trial else "",
        largest=LARGEST,
        users="\n".join(table(users, map(_cell, found.cells))),
        sizes="\n".join(table(sizes, (_size(*each, alone) for each in found.rates))),
        memory="\n".join(
            table(memory, (_memory(each, memory_mib) for each in found.memory))
        ),
    )


def _cell(cell: Cell) -> tuple[str, ...]:
    seen = cell.seen
    sent = seen.errors + seen.not_2xx + seen.checked
    batch = "1" if seen.batch_rows is None else f"{seen.batch_rows:.1f}"
    return (
        *(cell.server, str(cell.clients.count), f"{seen.mean_s:.3f}"),
        *(f"{seen.p95_s:.3f}", f"{seen.rate:.2f}", batch, str(sent), str(seen.failed)),
    )


def _size(rows: int, rate: float, alone: float) -> tuple[str, ...]:
    return str(rows), f"{rows / rate * 1000:.1f}", f"{rate:,.1f}", f"{rate / alone:.1f}"


def _memory(each: Memory, total_mib: int) -> tuple[str, ...]:
    share = f"{each.full_mib / total_mib:.0%}"
    return each.server, f"{each.ready_mib:,}", f"{each.full_mib:,}", share


def write(found: Found, device: Device, text: str, folder: Path) -> None:
    """Write gpu.md and its plot into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gpu.md").write_text(text)
    title = f"GPU: {device.name}; a model of {found.row_ms:.0f} ms for one row"
    _draw(found, title, folder / _PLOT_FILE)


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

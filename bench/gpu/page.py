"""The page docs/gpu.md and its plot."""

from pathlib import Path

from bench.figures import Seen
from bench.gpu.run import LARGEST, Found
from bench.report import table

_PLOT_FILE = "gpu.png"
_SIZE_INCHES = (9.6, 4.2)
_TRIAL = "**A trial run, which shows that the command works: no figures.**\n\n"
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
--threads=68`. A request has failed if it got no answer or another status than 200; \
wrong answers are not the model's.

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


def markdown(found: Found, header: str, memory_mib: int, *, trial: bool) -> str:
    """Return the page; `memory_mib` is the device's, `header` says how it was made."""
    alone = found.rates[0][1]
    users = (
        (cell.server, cell.clients.count, *cell.seen.row()) for cell in found.cells
    )
    sizes = (
        (rows, f"{rows / rate * 1000:.1f}", f"{rate:,.1f}", f"{rate / alone:.1f}")
        for rows, rate in found.rates
    )
    memory = (
        (each.server, *(f"{mib:,}" for mib in (each.ready_mib, each.full_mib)), share)
        for each in found.memory
        for share in [f"{each.full_mib / memory_mib:.0%}"]
    )
    full = f"{LARGEST} rows (MiB)"
    return _PAGE.format(
        found=found,
        header=header,
        plot=_PLOT_FILE,
        trial=_TRIAL if trial else "",
        largest=LARGEST,
        users="\n".join(table(("server", "users", *Seen.HEADING), users)),
        sizes="\n".join(table(("rows", "a batch (ms)", "rows/s", "x one row"), sizes)),
        memory="\n".join(
            table(("server", "first answer (MiB)", full, "of the card"), memory)
        ),
    )


def write(found: Found, device: str, text: str, folder: Path) -> None:
    """Write gpu.md and its plot into `folder`; `device` is its name."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gpu.md").write_text(text)
    _draw(found, device, folder / _PLOT_FILE)


def _draw(found: Found, device: str, file: Path) -> None:
    """Draw response time by users, and rows/s by rows in a batch."""
    # Without matplotlib the tests of the page still run.
    from bench import plots  # noqa: PLC0415

    series: dict[str, list[tuple[int, float]]] = {}
    for cell in found.cells:
        users, seen = cell.clients.count, cell.seen
        series.setdefault(cell.server, []).append((users, seen.mean_s))
        points = series.setdefault(f"{cell.server}, 95th percentile", [])
        points.append((users, seen.p95_s))
    with plots.saved(file, _SIZE_INCHES, columns=2) as (left, right):
        plots.lines(left, series, "users")
        plots.log_seconds(left)
        left.set_title(f"Response time, {found.row_ms:.0f} ms for one row")
        plots.lines(right, {device: found.rates}, "rows in a batch")
        plots.from_zero(right, "rows/s")
        right.set_title(f"The engine alone, {device}")

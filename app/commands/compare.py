"""`models compare`: two versions of a model on the same rows."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import click
from click.exceptions import Exit

from app.batching.model_log import ModelLog
from app.capture.ring import folder_of
from app.commands.atomic_write import atomic_write
from app.commands.plan import plot
from app.engines import open_engine
from app.promotion.comparison import compare
from app.promotion.replay_rows import replay_rows
from app.promotion.report_parts import table
from app.promotion.report_parts.plot import draw
from app.promotion.side import Side
from app.repository.find_version import Found, find_version
from app.settings import Settings
from app.settings.promotion_config import PromotionConfig
from app.user_code.user_code import user_code_of

_MOST_ROWS = 100_000


def compare_command(settings: Settings) -> click.Command:
    """Return the command `compare`."""

    @click.command("compare")
    @click.argument("name")
    @click.argument("serving", metavar="A", type=click.IntRange(min=0))
    @click.argument("new", metavar="B", type=click.IntRange(min=0))
    @click.option(
        "--replay",
        type=click.IntRange(1, _MOST_ROWS),
        help="The most rows. Default: as in basket.toml, else 200.",
    )
    @click.option(
        "--plot",
        "picture",
        type=click.Path(dir_okay=False, writable=True, path_type=Path),
        help="A PNG of agreement and latency; wants matplotlib.",
    )
    def compare_versions(
        name: str, serving: int, new: int, replay: int | None, picture: Path | None
    ) -> None:
        """Compare version B with version A as if it were to take over from it.

        The rows are captured ones, else EXAMPLE of service.py, else random. Fail if the
        model's [promotion] would refuse version B.
        """
        plot.check_possible(picture)
        versions = [find_version(settings, name, each) for each in (serving, new)]
        config = versions[0].config.promotion or PromotionConfig()
        if replay is not None:
            config = replace(config, replay=replay)
        _compare(settings, name, versions, config, picture)

    return compare_versions


def _compare(
    settings: Settings,
    name: str,
    versions: Sequence[Found],
    config: PromotionConfig,
    picture: Path | None,
) -> None:
    captured = None
    if settings.capture_dir is not None:
        captured = folder_of(settings.capture_dir, name)
    with ExitStack() as opened:
        old, new = (opened.enter_context(_side(name, each)) for each in versions)
        own = versions[0].config.settings
        rows = replay_rows(old, config, own, captured)
        report = compare(old, new, rows, config, progress=partial(click.echo, err=True))
    click.echo(f"{name} version {new.version} on {rows.described}")
    for line in table.lines(report):
        click.echo(line)
    refusal = report.refusal()
    if refusal:
        click.ClickException(f"version {new.version} {refusal}").show()
    else:
        click.echo(f"version {new.version} may take over from version {old.version}")
    if picture is not None:
        with atomic_write(picture) as file:
            draw(report, file)
        click.echo(f"written: {picture}")
    if refusal:
        raise Exit(1)


@contextmanager
def _side(name: str, version: Found) -> Iterator[Side]:
    """Open a version."""
    click.echo(f"loading {name} version {version.number} ...", err=True)
    own = version.config.settings
    with closing(open_engine(version.path, own)) as engine:
        code = user_code_of(engine, own, ModelLog(name, version.number))
        yield Side(version.number, engine.signatures, code, engine.run)

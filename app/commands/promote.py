"""`models promote`: promote a version that was refused, or an older one."""

import click

from app.commands.version import find_version, versions_of
from app.errors import ModelLoadError, SettingsError
from app.promotion.record import Records
from app.repository.rollouts.standing import digest_of
from app.repository.scan import fingerprint
from app.settings import Settings


def promote_command(settings: Settings) -> click.Command:
    """Return the command `promote`."""

    @click.command("promote")
    @click.argument("name")
    @click.argument("version", type=int)
    @click.option(
        "--force", is_flag=True, help="Take over without a proof and without steps."
    )
    def promote(name: str, version: int, force: bool) -> None:
        """Have a version prove itself again, or take over by force.

        By force an older version takes over, too; newer ones are refused then. A
        running server follows within two seconds.
        """
        records = _records(settings, name, version)
        try:
            if force:
                _force(settings, records, name, version)
            else:
                _retry(records, name, version)
        except OSError as error:
            place = settings.capture_dir
            raise SettingsError(
                f"BASKET_CAPTURE_DIR={place}: {error.strerror}"
            ) from error

    return promote


def _force(settings: Settings, records: Records, name: str, version: int) -> None:
    contents = {
        number: digest_of(path, fingerprint(path))
        for number, path in versions_of(settings, name).items()
        if number >= version
    }
    content = contents.pop(version)
    records.force(name, version, content, contents)
    click.echo(f"{name}: version {version} takes over without a proof")
    for number in sorted(contents):
        click.echo(f"{name}: version {number} is refused from now on")


def _records(settings: Settings, name: str, version: int) -> Records:
    found = find_version(settings, name, version)
    if found.config.promotion is None:
        raise ModelLoadError(
            f"basket.toml of {name!r} has no [promotion]: its newest version serves "
            "as soon as it is loaded"
        )
    if settings.capture_dir is None:
        raise SettingsError(
            "[promotion] needs BASKET_CAPTURE_DIR, as the server has it"
        )
    return Records(settings.capture_dir, keeps_unwritten=False)


def _retry(records: Records, name: str, version: int) -> None:
    refused = records.of(name).refused.get(version)
    if refused is None:
        raise ModelLoadError(
            f"version {version} of {name!r} was not refused; --force has it take over "
            "without a proof"
        )
    records.retry(name, version)
    click.echo(
        f"{name}: version {version} has to prove itself again; it was refused: "
        f"{refused.reason}"
    )

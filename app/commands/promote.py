"""`models promote` and `models send-back`: decide on versions by hand."""

import click

from app.repository.rollouts import by_hand
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
        if force:
            newer = by_hand.force(settings, name, version)
            click.echo(f"{name}: version {version} takes over without a proof")
            for number in newer:
                click.echo(f"{name}: version {number} is refused from now on")
        else:
            reason = by_hand.retry(settings, name, version)
            click.echo(
                f"{name}: version {version} has to prove itself again; it was refused: "
                f"{reason}"
            )

    return promote


def send_back_command(settings: Settings) -> click.Command:
    """Return the command `send-back`."""

    @click.command("send-back")
    @click.argument("name")
    @click.argument("version", type=int)
    @click.option("--reason", default="", help="Words for /readyz and the log.")
    def send_back(name: str, version: int, reason: str) -> None:
        """End a version's rollout: the version before has all traffic again.

        It is refused until its files change, or until `models promote`. A running
        server follows within two seconds.
        """
        by_hand.send_back(settings, name, version, reason)
        click.echo(f"{name}: version {version} is sent back")

    return send_back

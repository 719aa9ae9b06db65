"""`reliable doctor`: what is wrong with the set-up, before it shows."""

from __future__ import annotations

import click
from celery.bin.base import CeleryCommand

from celery_reliable.doctor import Examination, examine
from celery_reliable.exceptions import ReliableError
from celery_reliable.operations.cli.calling import PATIENCE_SECONDS, as_json_option
from celery_reliable.operations.cli.choosing import Duration
from celery_reliable.operations.cli.printing import counted, print_json
from celery_reliable.operations.tables import printable

__all__ = ["doctor"]

_FOUND, _AWAY = 1, 3
#: What counts with each --fail-level.
_FAILING = {
    "error": ("error",),
    "warning": ("error", "warning"),
    "info": ("error", "warning", "info"),
    "never": (),
}


@click.command("doctor", cls=CeleryCommand)
@as_json_option
@click.option(
    "--fail-level",
    type=click.Choice(list(_FAILING)),
    default="warning",
    show_default=True,
    help="The exit code is 1 for findings of this level, or worse.",
)
@click.option(
    "--grace-seconds",
    type=Duration(0.001),
    help="How long the orchestrator waits from SIGTERM to SIGKILL.  [default: GRACE_SECONDS]",
)
@click.pass_context
def doctor(ctx: click.Context, as_json: bool, fail_level: str, grace_seconds: float | None) -> None:
    """Check settings, tasks, releases, servers and workers.

    Each finding has a code (docs/reference/findings.rst), what happens if it is ignored, and a
    remedy.

    Exit codes: 0, nothing is wrong; 1, something is wrong (see --fail-level) or could not be
    checked; 2, usage error; 3, the ledger cannot be reached.
    """
    try:
        found = examine(ctx.obj.app, grace_seconds=grace_seconds, patience_seconds=PATIENCE_SECONDS)
    except ReliableError as exc:
        raise click.ClickException(printable(str(exc), keeps="\n")) from exc
    if as_json:
        print_json({"findings": [one.as_dict() for one in found.findings]})
    else:
        _print(found)
    if found.is_ledger_away and fail_level != "never":
        ctx.exit(_AWAY)
    ctx.exit(_FOUND if any(o.level in _FAILING[fail_level] for o in found.findings) else 0)


def _print(found: Examination) -> None:
    for one in found.findings:
        click.echo(f"{one.level}: {one.code} {one.name}")
        for label, text in (
            ("Seen", one.message),
            ("If ignored", one.ignored),
            ("To mend", one.hint),
        ):
            click.echo(printable(f"  {label + ':':<12}{text}"))
    wrong = [one for one in found.findings if one.level != "info"]
    told = f"{counted(len(wrong), 'finding')}" if wrong else "Nothing is wrong"
    infos = len(found.findings) - len(wrong)
    click.echo(f"{told}, {infos} for information." if infos else f"{told}.")

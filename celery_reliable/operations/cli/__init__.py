"""`celery -A proj reliable …`: what operators see of the ledger, and do to it, at a terminal.

Every command prints for people, or with ``--json`` the same for programs, on stdout.  What is wrong
is one paragraph on stderr, and an exit code: 1; 2 when the command itself was not given as it
should be; 3 when the ledger cannot be reached.
"""

from __future__ import annotations

from typing import Any

import click
from celery.bin.base import handle_preload_options

from celery_reliable.operations.cli.acts import discard, replay
from celery_reliable.operations.cli.events import audit, events
from celery_reliable.operations.cli.fleet import (
    metrics,
    purge_command,
    queues_command,
    release_command,
    run,
    sweep,
    workers,
)
from celery_reliable.operations.cli.letters import dead_letters
from celery_reliable.operations.cli.orders import drain, orders, pause, resume, strike
from celery_reliable.operations.cli.status import doctor, status
from celery_reliable.operations.cli.task_acts import move, revoke, stop
from celery_reliable.operations.cli.tasks import objects, show, tasks

__all__ = ["reliable"]


@click.group("reliable")
@click.pass_context
@handle_preload_options
def reliable(ctx: click.Context, **_: Any) -> None:
    """What waits and why, what failed, workers and passes of celery-reliable.

    Exit codes of all commands: 0; 1, something was wrong (with `status --check` and `doctor`: is
    wrong); 2, the command was not given as it should be; 3, the ledger cannot be reached.
    """


for _command in (replay, discard):
    dead_letters.add_command(_command)
for _command in (
    doctor,
    status,
    events,
    tasks,
    show,
    revoke,
    move,
    stop,
    pause,
    strike,
    drain,
    resume,
    orders,
    run,
    objects,
    workers,
    queues_command,
    metrics,
    dead_letters,
    audit,
    sweep,
    release_command,
    purge_command,
):
    reliable.add_command(_command)

"""`celery -A proj reliable …`: what operators see of the ledger, and do to it, at a terminal.

Every command prints for people, or with ``--json`` the same for programs, on stdout.  What is wrong
is one paragraph on stderr: exit code 1, or 2 when the command itself was not given as it should be.
"""

from __future__ import annotations

from typing import Any

import click
from celery.bin.base import handle_preload_options

from celery_reliable.operations.cli.letters import dead_letters
from celery_reliable.operations.cli.passes import release_command, sweep
from celery_reliable.operations.cli.queues import purge_command
from celery_reliable.operations.cli.workers import workers

__all__ = ["reliable"]


@click.group("reliable")
@click.pass_context
@handle_preload_options
def reliable(ctx: click.Context, **_: Any) -> None:
    """Dead letters, workers and passes of celery-reliable."""


for _command in (dead_letters, sweep, release_command, workers, purge_command):
    reliable.add_command(_command)

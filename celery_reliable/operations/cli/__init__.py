"""`celery -A proj reliable …`: what operators see of the ledger, and do to it, at a terminal.

Every command prints for people, or with ``--json`` the same for programs, on stdout; ``--yes``
asks nothing.  What is wrong
is one paragraph on stderr, and an exit code: 1; 2 when the command itself was not given as it
should be; 3 when the ledger cannot be reached.  The commands are made from the list of operations.
"""

from __future__ import annotations

from typing import Any

import click
from celery.bin.base import handle_preload_options

from celery_reliable.operations.catalog import ACTS, QUERIES
from celery_reliable.operations.cli.command import ANYWHERE, Anywhere, command_of
from celery_reliable.operations.cli.layouts import carry_out
from celery_reliable.operations.cli.monitoring import MORE, metrics
from celery_reliable.operations.operation import Command, Operation

__all__ = ["reliable"]


@click.group("reliable", cls=Anywhere, params=[*ANYWHERE])
@click.pass_context
@handle_preload_options
def reliable(ctx: click.Context, **_: Any) -> None:
    """Inspect and operate reliable tasks.

    The options may stand before a command or after it.

    Exit codes: 0, done; 1, the command failed, or found something wrong (`status --check`,
    `doctor`), or could not check it; 2, wrong usage; 3, the ledger cannot be reached.
    """


@reliable.group("dead-letters")
def dead_letters() -> None:
    """Tasks that were put aside: lost too often, failed for good, or not readable."""


_known: dict[str, list[tuple[Operation, Command]]] = {}
for _operation in (*QUERIES, *ACTS):
    for _command in _operation.commands:
        _known.setdefault(_command.name, []).append((_operation, _command))
for _name, _called in _known.items():
    _group = dead_letters if _name.startswith("dead-letters ") else reliable
    _group.add_command(command_of(_name, _called, **MORE.get(_name, {"carry_out": carry_out})))
reliable.add_command(metrics)

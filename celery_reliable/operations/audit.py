"""Who did what: notes of what operators do to many things at once, or to one."""

from __future__ import annotations

import getpass
import os
import secrets
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from celery_reliable.exceptions import ReliableError, one_line
from celery_reliable.ledger import Ledger
from celery_reliable.operations.views import Audited, as_json

__all__ = ["Outcome", "noted", "somebody"]


@dataclass
class Outcome:
    """What is known of an act so far."""

    #: Names the act.
    run: str = field(default_factory=partial(secrets.token_hex, 4))
    done: int = 0
    failed: int = 0
    problem: str = ""
    #: What it was done to, and how; what came of it may be added.
    about: dict[str, Any] = field(default_factory=dict)


@contextmanager
def noted(ledger: Ledger, act: str, by: str, about: Mapping[str, Any]) -> Iterator[Outcome]:
    """Note an act when it begins and when it ends, however it does; raises what the ledger raises
    when the beginning cannot be noted.
    """
    given = {name: value for name, value in about.items() if value not in (None, "")}
    outcome = Outcome(about=given)
    entry = Audited(outcome.run, "begin", act, by, given)
    ledger.audits.note(as_json(entry))
    try:
        yield outcome
    except BaseException as exc:
        outcome.problem = one_line(exc)
        raise
    finally:
        # Where the ledger is away, the act has no end in the audit.
        with suppress(ReliableError):
            ledger.audits.note(as_json(replace(entry, phase="end", **asdict(outcome))))


def somebody() -> str:
    """Return who runs this process: user@host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"

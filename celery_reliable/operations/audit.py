"""Who did what: notes of what operators do to many things at once, or to one."""

from __future__ import annotations

import getpass
import os
import secrets
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from celery_reliable.exceptions import ReliableError, one_line
from celery_reliable.ledger import Ledger
from celery_reliable.operations import shapes
from celery_reliable.operations.times import iso

__all__ = ["AuditEntry", "Outcome", "noted", "read_audit", "somebody"]


@dataclass(frozen=True)
class AuditEntry:
    """One act, as it was noted when it began or when it ended.

    Attributes:
        at_ms: when, on the server's clock.
        run: names the act: its beginning and its end have the same.
        phase: "begin" or "end".  An act without an end was killed, or goes on.
        act: what: "replay", "discard", ...
        by: who, as the door knows him.
        about: what it was to be done to, and how: filter, group, ids, rate, limit.
        done: how many it was done to.
        failed: how many it could not be done to.
        problem: why it ended early, or what went wrong last; empty when nothing did.
    """

    run: str
    phase: str
    act: str
    by: str
    about: Mapping[str, Any] = field(default_factory=dict)
    done: int = 0
    failed: int = 0
    problem: str = ""
    at_ms: int = 0

    def as_dict(self) -> shapes.Audited:
        """The same as plain JSON values."""
        return {
            "run": self.run,
            "phase": self.phase,
            "act": self.act,
            "by": self.by,
            "about": dict(self.about),
            "done": self.done,
            "failed": self.failed,
            "problem": self.problem,
            "at": iso(self.at_ms),
        }


_UNKNOWN: dict[str, Any] = {"run": "", "phase": "", "act": "", "by": ""}


@dataclass
class Outcome:
    """What is known of an act so far."""

    done: int = 0
    failed: int = 0
    problem: str = ""
    #: What it was done to, and how; what came of it may be added.
    about: dict[str, Any] = field(default_factory=dict)


@contextmanager
def noted(
    ledger: Ledger, act: str, by: str, about: Mapping[str, Any], run: str = ""
) -> Iterator[Outcome]:
    """Note an act when it begins and when it ends, however it does; raises what the ledger raises
    when the beginning cannot be noted.
    """
    given = {name: value for name, value in about.items() if value not in (None, "")}
    entry = AuditEntry(run or secrets.token_hex(4), "begin", act, by, given)
    ledger.audits.note(entry.as_dict())
    outcome = Outcome(about=given)
    try:
        yield outcome
    except BaseException as exc:
        outcome.problem = one_line(exc)
        raise
    finally:
        # Where the ledger is away, the act has no end in the audit.
        with suppress(ReliableError):
            ledger.audits.note(replace(entry, phase="end", **asdict(outcome)).as_dict())


def read_audit(ledger: Ledger, limit: int) -> list[AuditEntry]:
    """Return the latest *limit* entries, the latest first; of a later version what is known."""
    names = set(AuditEntry.__dataclass_fields__) - {"at_ms"}
    found = []
    for at_ms, about in ledger.audits.latest(limit):
        known = {name: value for name, value in about.items() if name in names}
        found.append(AuditEntry(**{**_UNKNOWN, **known}, at_ms=at_ms))
    return found


def somebody() -> str:
    """Return who runs this process: user@host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"

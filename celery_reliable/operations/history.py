"""What happened: losses, deaths, orders and other unusual events of tasks and workers; and who did
what, the audit of what operators do.
"""

from __future__ import annotations

import getpass
import os
import secrets
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from typing import Annotated, Any

from celery_reliable import events
from celery_reliable.clock import moment
from celery_reliable.exceptions import ReliableError, one_line
from celery_reliable.ledger import Ledger
from celery_reliable.operations.operation import Limit, Param, Part, duration
from celery_reliable.operations.views import Audited, Happening, as_json

__all__ = ["KINDS", "Happenings", "noted", "somebody"]

#: The names of the events that are noted.
KINDS = tuple(sorted(events.DECLARED))

#: So many are read at once, and looked at for a page.
_BATCH, _MOST = 500, 10_000


class Happenings(Part):
    """What the ledger has noted.  Raises what the ledger raises."""

    def page(
        self,
        *,
        kinds: Annotated[
            tuple[str, ...],
            Param("The kind of event; may be repeated.", choices=KINDS, option="--kind"),
        ] = (),
        task: Annotated[str, Param("The task's id or name, or a pattern of names.")] = "",
        since_seconds: Annotated[float | None, duration("The greatest age.")] = None,
        limit: Limit = 50,
    ) -> list[Happening]:
        """List losses, deaths, orders and other unusual events, the latest at the end.

        A task that simply succeeds has no event.
        """
        now_ms = self.ledger.workers.time_ms()
        since_ms = 0.0 if since_seconds is None else now_ms - since_seconds * 1000
        found: list[Happening] = []
        before = ""
        for _ in range(_MOST // _BATCH):
            rows = self.ledger.happenings.latest(_BATCH, before=before)
            for row in rows:
                before, about = row.id, dict(row.about)
                name, task_id = str(about.pop("name", "")), str(about.pop("id", ""))
                one = Happening(moment(row.at_ms), row.kind, name, task_id, about, row.is_last)
                is_meant = one.kind and (not kinds or one.kind in kinds) and row.at_ms >= since_ms
                if is_meant and (not task or one.task_id == task or fnmatchcase(one.name, task)):
                    found.append(one)
            if len(rows) < _BATCH or len(found) >= limit:
                break
        return found[:limit][::-1]


@contextmanager
def noted(
    ledger: Ledger, act: str, by: str, about: Mapping[str, Any], *, is_noted: bool = True
) -> Iterator[Audited]:
    """Note an act when it begins and when it ends, however it does; raises what the ledger raises
    when the beginning cannot be noted.  Without *is_noted* (a dry run) nothing is.

    Yields what is noted at the end: the body says there what came of the act.
    """
    given = {name: value for name, value in about.items() if value}
    entry = Audited(secrets.token_hex(4), "begin", act, by, given)
    if not is_noted:
        yield entry
        return
    ledger.audits.note(as_json(entry))
    entry.phase = "end"
    try:
        yield entry
    except BaseException as exc:
        entry.problem = one_line(exc)
        raise
    finally:
        # Where the ledger is away, the act has no end in the audit.
        with suppress(ReliableError):
            ledger.audits.note(as_json(entry))


def somebody() -> str:
    """Return who runs this process: user@host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"

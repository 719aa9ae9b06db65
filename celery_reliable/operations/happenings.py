"""Losses, deaths, orders and other unusual events of tasks and workers."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Annotated

from celery_reliable import events
from celery_reliable.ledger import Ledger
from celery_reliable.operations.operation import Limit, Param
from celery_reliable.operations.views import Happening
from celery_reliable.operations.words import moment

__all__ = ["KINDS", "Happenings"]

#: The names of the events that are noted.
KINDS = tuple(sorted(name for name, one in events.DECLARED.items() if one.is_noted))

#: So many are read at once, and looked at for a page.
_BATCH, _MOST = 500, 10_000


class Happenings:
    """What the ledger has noted.  Raises what the ledger raises."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def page(
        self,
        *,
        kinds: Annotated[
            tuple[str, ...],
            Param("The kind of event; may be repeated.", choices=KINDS, option="--kind"),
        ] = (),
        task: Annotated[
            str, Param("The task's id or name, or a pattern of names.", max_length=1000)
        ] = "",
        since_seconds: Annotated[
            float | None, Param("The greatest age.", ge=0, le=1e10, is_duration=True)
        ] = None,
        limit: Limit = 50,
    ) -> list[Happening]:
        """List losses, deaths, orders and other unusual events, the latest at the end.

        A task that simply succeeds has no event.
        """
        since_ms = 0.0
        if since_seconds is not None:
            since_ms = self._ledger.workers.time_ms() - since_seconds * 1000
        found: list[Happening] = []
        before = ""
        for _ in range(_MOST // _BATCH):
            rows = self._ledger.happenings.latest(_BATCH, before=before)
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

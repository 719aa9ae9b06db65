"""Limited tasks, sent as their moments come: too fine a time for passes of the sweeper."""

from __future__ import annotations

import hashlib
import secrets

from celery import Celery

from celery_reliable.ledger import Ledger, answers
from celery_reliable.options import is_limited, is_reliable
from celery_reliable.recovery.lost_messages import MOST_BYTES
from celery_reliable.recovery.sending import Sending

__all__ = ["Pacing"]

#: For so long who looks after the lines is believed to do so; so often the others ask.
_LEASE_MS = 1000
#: A task that is so late is sent by whoever asks.
_LATE_MS = 200
#: A moment may be given at any time, and be near: so often the lines are looked at.
_LOOK_SECONDS = 0.05
_AT_ONCE = 100


class Pacing:
    """Sends an app's limited tasks when they may begin.  One worker does so at a time; when that is
    gone or too slow another one does.
    """

    def __init__(self, app: Celery, ledger: Ledger, sending: Sending) -> None:
        self._ledger = ledger
        self._sending = sending
        self._name = secrets.token_hex(4)
        self._tasks = sorted(
            name for name, task in app.tasks.items() if is_reliable(task) and is_limited(task)
        )
        self._whose = hashlib.sha256("\n".join(self._tasks).encode()).hexdigest()[:12]

    @property
    def is_needed(self) -> bool:
        """Whether the app has limited tasks."""
        return bool(self._tasks)

    def turn(self) -> float:
        """Send what may begin by now; return the seconds after which to ask again.

        Raises LedgerUnavailable and LedgerRefused.
        """
        answer = self._ledger.paces.ripe(
            self._tasks,
            whose=self._whose,
            worker=self._name,
            lease_ms=_LEASE_MS,
            late_ms=_LATE_MS,
            limit=_AT_ONCE,
        )
        if isinstance(answer, answers.Another):
            return answer.wait_ms / 1000
        if answer.dues:
            ids = [due.task_id for due in answer.dues]
            found = self._ledger.find_in_groups(ids, most_bytes=MOST_BYTES)
            self._sending.send_limited(
                [
                    (due, one.record)
                    for due, one in zip(answer.dues, found, strict=True)
                    if one.record is not None
                ]
            )
        return min(answer.wait_ms / 1000, _LOOK_SECONDS)

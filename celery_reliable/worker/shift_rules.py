"""What processes of the pool may take by themselves."""

from __future__ import annotations

import re
from typing import Any

from celery.worker import state

from celery_reliable.compat.consumer import has_rate_limit, waiting_for_slots
from celery_reliable.compat.request import has_default_request
from celery_reliable.compat.tracer import has_default_strategy
from celery_reliable.context import WorkerProcess
from celery_reliable.ledger import LONGEST
from celery_reliable.message import NAMED, RETURNS
from celery_reliable.options import CALL, is_limited, is_reliable
from celery_reliable.worker.left_out import LeftOut

__all__ = ["ShiftRules"]

#: A shift is handed so many revoked ids at most.
_MOST_REVOKED = 200
#: Within a JSON text quotes are escaped, so these are keys of a message's headers.
_NAME = re.compile(rb'"task": "([^"\\]*)"')
_OF_HOT = (b'"eta": null', b'"expires": null', b'"timelimit": [null, null]')
_OF_COLD = tuple(b'"%b": ' % name.encode() for name in (CALL, NAMED, RETURNS, "compression"))


class ShiftRules:
    """The rules of one worker.  For the main loop.

    Each message that finds an idle process is told of all tasks, so what is known of them is kept.
    """

    def __init__(self, w: Any, process: WorkerProcess) -> None:
        self._worker = w
        self._process = process
        self._left_out = LeftOut(process, self._is_cold)
        #: As it was when the rest was made of it.
        self._seen: list[str] | None = None
        self._cold: list[str] | None = None
        #: The names of the others, as messages have them.
        self._hot: frozenset[bytes] = frozenset()
        self._limits: dict[str, tuple[float, float]] | None = None

    def forget(self) -> None:
        """Look at time limits anew: a remote command has changed one, or Celery began anew."""
        self._limits = None

    def allow_any(self) -> bool:
        """Whether processes may take their own messages now."""
        w = self._worker
        return not (
            not w.app.use_fast_trace_task
            or len(state.revoked) > _MOST_REVOKED
            or waiting_for_slots(w)
        )

    def cold(self) -> list[str] | None:
        """Return the names of the reliable tasks that go by the main process; None if all do."""
        cold = self._left_out.names(self._worker.consumer)
        if cold is not self._seen:
            tasks = [one.name for one in self._worker.app.tasks.values() if is_reliable(one)]
            self._cold = cold if len(cold) < len(tasks) else None
            self._hot = frozenset(name.encode() for name in {*tasks}.difference(cold))
            self._seen, self._limits = cold, None
        return self._cold

    def limits(self) -> dict[str, tuple[float, float]]:
        """Return soft and hard time limits by the names of the reliable tasks that have one, in
        seconds; 0: none.
        """
        if self._limits is None:
            w = self._worker
            found = {
                one.name: (
                    one.soft_time_limit or w.soft_time_limit or 0.0,
                    one.time_limit or w.time_limit or 0.0,
                )
                for one in w.app.tasks.values()
                if is_reliable(one)
            }
            self._limits = {name: limits for name, limits in found.items() if any(limits)}
        return self._limits

    def _is_cold(self, task: Any) -> bool:
        return bool(
            not has_default_strategy(task)
            or not has_default_request(task, "celery_reliable.request:ReliableRequest")
            or getattr(type(task), "time_to_run_seconds", None)
            or is_limited(task)
            or has_rate_limit(self._worker.consumer, task.name)
            or self._process.orders.of_task(task.name)
        )

    def may_allow(self, message: bytes) -> bool:
        """Whether a message is probably one that a process takes, as far as its text tells: the
        script of the taking decides.
        """
        name = _NAME.search(message)
        return (
            len(message) <= LONGEST
            and name is not None
            and name[1] in self._hot
            and all(one in message for one in _OF_HOT)
            and not any(one in message for one in _OF_COLD)
        )

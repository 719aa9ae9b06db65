"""What processes of the pool may take by themselves."""

from __future__ import annotations

from typing import Any

from celery.worker import state

from celery_reliable.compat.consumer import has_rate_limit
from celery_reliable.compat.controller import waiting_for_slots
from celery_reliable.compat.request import has_default_request
from celery_reliable.compat.tracer import has_default_strategy
from celery_reliable.context import WorkerProcess
from celery_reliable.message import NAMED
from celery_reliable.options import CALL, is_limited, is_reliable

__all__ = ["ShiftRules"]

#: A shift is handed so many revoked ids at most.
_MOST_REVOKED = 200
#: With one of these a message goes by the main process; so does what the script of the taking
#: answers as cold.
_COLD_HEADERS = ("eta", "expires", "compression", "stamped_headers", CALL, NAMED)


class ShiftRules:
    """The rules of one worker.  For the main loop."""

    def __init__(self, w: Any, process: WorkerProcess) -> None:
        self._worker = w
        self._process = process

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
        c = self._worker.consumer
        tasks = [one for one in self._worker.app.tasks.values() if is_reliable(one)]
        cold = [one.name for one in tasks if not self._is_hot(c, one)]
        return cold if len(cold) < len(tasks) else None

    def limits(self) -> dict[str, tuple[float, float]]:
        """Return soft and hard time limits by the names of the reliable tasks that have one, in
        seconds; 0: none.
        """
        w = self._worker
        found = {
            one.name: (
                one.soft_time_limit or w.soft_time_limit or 0.0,
                one.time_limit or w.time_limit or 0.0,
            )
            for one in w.app.tasks.values()
            if is_reliable(one)
        }
        return {name: limits for name, limits in found.items() if any(limits)}

    def _is_hot(self, c: Any, task: Any) -> bool:
        return not (
            not has_default_strategy(task)
            or not has_default_request(task, "celery_reliable.request:ReliableRequest")
            or getattr(type(task), "time_to_run_seconds", None)
            or is_limited(task)
            or has_rate_limit(c, task.name)
            or self._process.orders.of_task(task.name)
        )

    def allow(self, headers: dict[str, Any], cold: list[str]) -> bool:
        """Whether a message with these headers may be one that a process takes."""
        return not (
            any(headers.get(name) for name in _COLD_HEADERS)
            or any(one is not None for one in headers.get("timelimit") or ())
            or headers["task"] in cold
            or headers["id"] in state.revoked
        )

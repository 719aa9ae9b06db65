"""How many processes a pool is to have whose processes take their own messages."""

from __future__ import annotations

from typing import Any

from celery.worker import state

from celery_reliable.compat.processes import count_also, scale
from celery_reliable.pool import how_far
from celery_reliable.worker.running_shift import RunningShifts

__all__ = ["ShiftScaling"]


class ShiftScaling:
    """Lets the autoscaler of a worker see what its main process does not have: the tasks that
    processes have taken, and, once all of them are busy, the messages that wait in the queues.  For
    the main loop.
    """

    def __init__(self, w: Any, running: RunningShifts) -> None:
        self._worker = w
        self._running = running
        self._n_waiting = 0
        self._has_begun = False
        #: The number of the last message of each shift, by its token.
        self._numbers: dict[str, int] = {}
        #: Whether processes may take their own messages: another scaler would not see any of them.
        self.is_possible = not w.autoscale or count_also(w, self._n_unseen)

    def _n_unseen(self) -> int:
        return len(self._running) + self._n_waiting

    def note_begun(self) -> None:
        """Note that a process takes messages."""
        self._has_begun = True

    def look(self, channel: Any) -> None:
        """Let the pool grow or shrink.  Nothing happens without an autoscaler."""
        w = self._worker
        if not (w.autoscale and self.is_possible):
            return
        self._n_waiting = 0
        busy = len(self._running) + len(state.reserved_requests)
        if channel is not None and w.pool.num_processes <= busy:
            self._n_waiting = channel.count_waiting()
        # One shift may run a task for long, and another hundreds.
        numbers = {one.token: how_far(one.slot)[1] for one in self._running}
        has_begun = self._has_begun or any(
            number != self._numbers.get(token) for token, number in numbers.items()
        )
        self._has_begun, self._numbers = False, numbers
        scale(w, has_begun=has_begun)

"""Shifts that were handed to the pool, as the main process knows them."""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from billiard.exceptions import Terminated, TimeLimitExceeded, WorkerLostError
from celery.worker import state

from celery_reliable.attempt import DELIVERY
from celery_reliable.broker import Delivery
from celery_reliable.compat import note
from celery_reliable.compat.consumer import request_for
from celery_reliable.exceptions import LedgerRefused, LedgerUnavailable
from celery_reliable.log import logger
from celery_reliable.message import payload_of
from celery_reliable.options import is_reliable
from celery_reliable.pool import N_SLOTS, Left, slot_of
from celery_reliable.worker.claims import PATIENCE_SECONDS, lost_worker

if TYPE_CHECKING:
    from celery_reliable.worker.worker_step import WorkerStep

__all__ = [
    "RunningShift",
    "RunningShifts",
    "ShiftRequests",
]


@dataclass
class RunningShift:
    """A shift that was handed to the pool."""

    token: str
    slot: int
    #: The numbers of its messages are greater, and those of all shifts before are smaller.
    after: int
    pid: int | None = None
    #: That of the pool.
    job: Any = None
    #: When the last task began of which it was told that its soft limit is up.
    told_of: float = 0.0

    def holds(self, tag: str) -> bool:
        """Whether it is not done with this message, or claim."""
        number = tag.rpartition(".")[2]
        slot = slot_of(self.slot)
        return number.isdecimal() and slot.first <= int(number) <= slot.last

    def has_opened(self, tag: str) -> bool:
        """Whether it has decoded the last message that it has taken, and this is that."""
        return tag == self.tag_of(slot_of(self.slot).opened)

    def has(self, tag: str) -> bool:
        """Whether it has taken the message with this tag."""
        return tag.rpartition(".")[0] == self.token

    def tag_of(self, number: int) -> str:
        """Return the tag of its message with this number; it is the token of its claim, too."""
        return f"{self.token}.{number}"


#: No shift takes so many messages.
_MOST_IN_SHIFT = 1 << 20


class RunningShifts:
    """All of one worker.  Any thread may ask whose a claim is."""

    def __init__(self) -> None:
        self._running: dict[str, RunningShift] = {}
        self._n_begun = 0
        #: Those of the shared memory that are free; the one that was given back first is the last
        #: to be used again.
        self._slots = deque(range(N_SLOTS))

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[RunningShift]:
        return iter(list(self._running.values()))

    @property
    def is_full(self) -> bool:
        """Whether no more can run at once."""
        return not self._slots

    def add(self) -> RunningShift:
        """Return a new one."""
        slot = self._slots.popleft()
        slot_of(slot).clear()
        self._n_begun += 1
        running = RunningShift(secrets.token_hex(8), slot, self._n_begun * _MOST_IN_SHIFT)
        self._running[running.token] = running
        return running

    def remove(self, token: str) -> RunningShift | None:
        """Forget a shift that has ended, and return it."""
        running = self._running.pop(token, None)
        if running is not None:
            self._slots.append(running.slot)
        return running

    def holding(self, tag: str) -> RunningShift | None:
        """Return the one that is not done with a message, or a claim; None if there is none."""
        running = self._running.get(tag.rpartition(".")[0])
        return running if running is not None and running.holds(tag) else None


#: With what a process ends that died, or was stopped.
_ENDED = (Terminated, TimeLimitExceeded, WorkerLostError, SystemExit, KeyboardInterrupt)


class ShiftRequests:
    """Makes and keeps Celery's requests for what processes of the pool have taken by themselves,
    and deals with what their shifts leave: a message for the main process, or what a process ran
    that died.  For the main loop.

    A request is made only where somebody has to see the task, to stop it or to end it.
    """

    def __init__(self, w: Any, step: WorkerStep) -> None:
        self._worker = w
        self._step = step
        #: By the tags of their messages.
        self._shown: dict[str, Any] = {}

    def show(self, running_shifts: Iterable[RunningShift]) -> None:
        """Let Celery's state have a request of each task that runs in a shift."""
        try:
            self._show(list(running_shifts))
        except Exception as exc:
            # The broker or the ledger is away. Who asked sees less.
            logger.warning("shifts_not_seen error=%s", exc)

    def _show(self, shifts: list[RunningShift]) -> None:
        unacked = self._step.unacked
        filed = unacked.tags() if unacked is not None and self._shown else set()
        for tag in [tag for tag in self._shown if tag not in filed]:
            if not any(self._is_let_go(tag, running) for running in shifts):
                # It has ended, and its process runs another task by now.
                self.hide(tag)
        for running in shifts:
            for left in self.filed(running):
                # Who asks to stop a task needs its process, which the pool has yet to name.
                if left.tag in self._shown or running.pid is None:
                    continue
                try:
                    request = self.request(left, running)
                    if request is not None:
                        self._shown[left.tag] = state.requests[request.id] = request
                        state.active_requests.add(request)
                except Exception as exc:
                    # The others are shown all the same.
                    logger.warning("shifts_not_seen error=%s", exc)

    @property
    def n_shown(self) -> int:
        """How many are shown."""
        return len(self._shown)

    def shown(self, tag: str) -> Any:
        """Return the request that is shown of a message; None if there is none."""
        return self._shown.get(tag)

    def let_go(self, running: RunningShift) -> Iterator[Any]:
        """Yield the requests that the worker has revoked, or stopped for their tasks to run again,
        while a shift ran these; they are shown no more.
        """
        for tag in [tag for tag in self._shown if self._is_let_go(tag, running)]:
            yield self._shown.pop(tag)

    def _is_let_go(self, tag: str, running: RunningShift) -> bool:
        request = self._shown[tag]
        is_its_own = running.has(tag) and running.holds(tag)
        return is_its_own and bool(request.acknowledged or request.reliable_is_cancelled)

    def hide_all_of(self, running: RunningShift) -> None:
        """Forget the requests of what a shift ran, which has ended."""
        for tag in [tag for tag in self._shown if running.has(tag)]:
            self.hide(tag)

    def hide(self, tag: str) -> None:
        """Forget the request of a message, if one is shown: its task has ended without the main
        process.
        """
        request = self._shown.pop(tag, None)
        if request is not None:
            state.task_ready(request)
            request.message.channel.qos.forget(tag)

    def filed(self, running: RunningShift) -> Iterator[Left]:
        """Yield the messages that a shift has taken, and that are still in the unacked hash."""
        unacked = self._step.unacked
        if unacked is None or self.channel is None:
            return
        for tag in [tag for tag in unacked.tags() if running.has(tag)]:
            entry = unacked.entry(tag)
            if entry is not None:
                yield Left(tag, entry.queue, entry.raw)

    def request(
        self,
        left: Left,
        running: RunningShift,
        *,
        is_known: bool = False,
        is_opened: bool = True,
    ) -> Any:
        """Return Celery's request of a message that a process runs, or ran when it died; None when
        its task was not claimed.  *is_known*: nobody need ask whether it was.
        """
        shown = self._shown.pop(left.tag, None)
        if shown is not None:
            return shown
        c, channel = self._worker.consumer, self.channel
        payload = payload_of(left.message)
        task = self._worker.app.tasks.get((payload.get("headers") or {}).get("task"))
        if task is None or not is_reliable(task):
            return None
        claimed_ms, token = 0, left.tag
        if not is_known:
            try:
                record = self._step.reliable.ledger.find(
                    payload["headers"]["id"], patience_seconds=PATIENCE_SECONDS
                )
            except (LedgerUnavailable, LedgerRefused):
                record = None
            if record is None or record.token != token:
                return None
            claimed_ms = record.claimed_ms or 0
        payload["properties"]["delivery_tag"] = left.tag
        # What it may be decoded from, as Celery's consumer has it.
        message = channel.Message(payload, channel=channel, accept=c.task_consumer.accept)
        note(message, "queue", left.queue)
        note(message, "holder", self._step.process.id)
        channel.qos.append(message, left.tag)
        started_at = claimed_ms / 1000 or time.time()
        request = request_for(c, task, message, running.pid, started_at, is_opened=is_opened)
        request.reliable_token, request.reliable_is_opened = token, is_opened
        request.request_dict["properties"][DELIVERY] = token
        return request

    # -- what is left

    def end_lost(self, running: RunningShift, exc_info: Any) -> None:
        """Let end what a process ran that was lost in its shift, or stopped."""
        # billiard wraps what a process has sent, and what it says of one that died.
        exc = getattr(exc_info.exception, "exc", exc_info.exception)
        if not isinstance(exc, _ENDED):
            # Of what it ran nobody knows more than if it had died.
            exc_info = lost_worker(exc)
        # Without a look at the broker, which may be away.
        let_go = list(self.let_go(running))
        has_died, is_leaving = isinstance(exc, WorkerLostError), self._step.is_leaving
        for request in let_go:
            _end(request, exc_info)
        ended = {request.message.delivery_tag for request in let_go}
        try:
            for left in self.filed(running):
                if left.tag in ended:
                    continue
                try:
                    # What has killed one process by being opened would kill this one, too.
                    is_opened = not has_died or running.has_opened(left.tag)
                    request = self.request(left, running, is_opened=is_opened)
                    if request is None and not is_opened and running.pid and not is_leaving:
                        # Nobody has claimed it, and whoever opens it may die again.
                        request = self.request(left, running, is_known=True, is_opened=False)
                except Exception as exc:
                    logger.warning("shift_not_ended error=%s", exc)
                    continue
                if request is None:
                    self.take_over(left, running)
                else:
                    _end(request, exc_info)
        except Exception as exc:
            logger.warning("shift_not_ended error=%s", exc)
        self.hide_all_of(running)

    def take_over(self, left: Left, running: RunningShift) -> None:
        """Deal with a message that a shift has left as if the main process had taken it."""
        channel = self.channel
        if channel is None:
            # It goes back once the worker is connected again.
            return
        if self._step.is_leaving:
            channel.reliable_unacked.give_back(channel, left.tag, is_last=False)
            return
        if left.outcome is None:
            delivery = Delivery(left.tag, left.queue, left.message, self._step.process.id)
            channel.deliver_all([delivery])
            return
        request = self.request(left, running, is_known=True)
        if request is not None:
            state.task_reserved(request)
            request.on_success(left.outcome)

    @property
    def channel(self) -> Any:
        """The channel of the worker's consumer; None while there is none."""
        consumer = getattr(self._worker.consumer, "task_consumer", None)
        return consumer.channel if consumer is not None else None


def _end(request: Any, exc_info: Any) -> None:
    """Let a request end that its process cannot end, as the pool does."""
    state.total_count[request.name] += 1
    state.all_total_count[0] += 1
    request.on_failure(exc_info)

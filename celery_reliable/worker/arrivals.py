"""Arrivals: messages that are filed as they leave their queue, and claimed by the same step if a
process is idle.

The worker asks for the next one before it is there.  So the claim's token exists before the claim,
and answers for it from then on; what was decided when it asked is looked at again when the message
has come.  What cannot begin then is released, and waits as every other message that was fetched.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from celery_reliable import clock
from celery_reliable.app import Reliable
from celery_reliable.broker import Arrival, Delivery, Queues, take_next_text, unquoted
from celery_reliable.context import WorkerProcess
from celery_reliable.exceptions import LedgerRefused, LedgerUnavailable
from celery_reliable.ledger import LONGEST, NextStep, NextSteps, NextTask, answers
from celery_reliable.log import logger
from celery_reliable.message import headers_as_written, payload_of
from celery_reliable.model import Claim
from celery_reliable.redis_io import refuses_writes
from celery_reliable.worker.claims import PATIENCE_SECONDS
from celery_reliable.worker.early_claims import EarlyClaim, EarlyClaims, Watched

__all__ = ["Arrivals"]


#: So much later than it should a server may end the wait of a client that is gone.
_LATE_SECONDS = 0.5
#: So long after that nobody looks any more for what came to it: it is given back.
_LOST_SECONDS = 15.0
#: A server that is full lets nobody wait like that; for so long it is not asked.
_FULL_SECONDS = 10.0


class Arrivals:
    """Those of one worker with a pool of processes; kept beyond a connection.  For the main
    loop.
    """

    def __init__(self, reliable: Reliable, process: WorkerProcess, early: EarlyClaims) -> None:
        self._ledger = reliable.ledger
        self._process = process
        self._early = early
        self._due_in_ms = reliable.config.sweep_ms
        #: By what they are made of; of one worker there are few.
        self._steps: dict[tuple[Any, ...], NextSteps] = {}
        self._awaited: _Awaited | None = None
        #: Those whose connection was lost, and who have not been found.
        self._lost: list[_Awaited] = []
        #: Whether the server knows the script.
        self.is_known = False
        self._has_priorities = False
        self._is_forbidden = False
        self._not_before = 0.0

    # -- what the channel asks

    @property
    def may_wait(self) -> bool:
        """Whether the server lets the worker wait like that, and nobody sends with priorities."""
        return not (
            self._has_priorities or self._is_forbidden or time.monotonic() < self._not_before
        )

    def left_out(self) -> Sequence[str]:
        """Return the names of tasks whose messages are filed and not claimed."""
        return self._early.left_out()

    def next(self, where: Queues) -> _Awaited | None:
        """Return the next message to wait for; None when that cannot be now."""
        if not self.is_known and not self._teach(where):
            return None
        steps = self._steps_for(where, claims=self._early.has_idle_child())
        self._awaited = self._new(steps)
        return self._awaited

    def _teach(self, where: Queues) -> bool:
        """Let the server know the script, by a call that takes nothing; whether it does now."""
        nowhere = self._steps_for(replace(where, names=(), lists=()), claims=True)
        try:
            self._ledger.take_next(self._new(nowhere, watched=False).step, PATIENCE_SECONDS)
        except (LedgerUnavailable, LedgerRefused) as error:
            logger.info("arrivals_not_looked_for error=%s", error)
            return False
        self.is_known = True
        return True

    @property
    def tags(self) -> set[str]:
        """Those under which messages may be filed of which the worker has not heard."""
        awaited = [self._awaited] if self._awaited is not None else []
        return {one.token for one in [*awaited, *self._lost]}

    @property
    def has_lost(self) -> bool:
        """Whether the connection of a wait was lost, and nobody knows whether something came."""
        now = time.monotonic()
        return any(one.is_to_be_looked_for(now) for one in self._lost)

    def look(self, where: Queues, is_consumed: Callable[[str], bool]) -> Iterator[Arrival]:
        """Yield what has come for waits whose connection was lost.

        *is_consumed*: whether what is in a queue may begin here.
        """
        lost, now = self._lost, time.monotonic()
        steps = self._steps_for(where, claims=True)
        try:
            for one in [one for one in lost if one.is_to_be_looked_for(now)]:
                one.was_looked_for = True
                one.step = steps.step(one.token, done="", filed_ms=int(time.time() * 1000))
                task = one.step.answer = self._ledger.take_next(one.step, PATIENCE_SECONDS)
                if task.message is not None:
                    lost.remove(one)
                    yield self.arrival(one, task, is_consumed)
                elif now >= one.late_at:
                    lost.remove(one)
                    # What was sent may yet arrive, after however long.
                    one.give_up()
        except (LedgerUnavailable, LedgerRefused) as error:
            logger.info("arrivals_not_looked_for error=%s", error)

    def note_priorities(self) -> None:
        """Note that messages wait in lists of other priorities, for which nobody can wait so."""
        self._has_priorities = True

    def refuse(self, error: Exception) -> None:
        """Note that the server has refused a part of the wait: the worker pops messages now."""
        if refuses_writes(error):
            self._not_before = time.monotonic() + _FULL_SECONDS
        elif not self._is_forbidden:
            self._is_forbidden = True
            logger.warning("arrivals_forbidden worker=%s error=%s", self._process.id, error)

    # -- connections

    def begin_connection(self) -> None:
        """Note that the worker has connected anew: maybe to another server."""
        self.is_known = False
        if self._awaited is not None:
            self._awaited.lose(0)

    def give_up_lost(self) -> None:
        """Give up what has not been found for long: its message is given back, as the worker does
        not hold it, and its claim is released.
        """
        now = time.monotonic()
        for one in [one for one in self._lost if one.late_at + _LOST_SECONDS < now]:
            self._lost.remove(one)
            one.give_up()

    # -- what has come

    def _new(self, steps: NextSteps, *, watched: bool = True) -> _Awaited:
        token = self._early.new_token()
        step = steps.step(token, done="", filed_ms=int(time.time() * 1000))
        awaited = _Awaited(token, self._process.id, step, self)
        if watched:
            self._early.watch(token, awaited)
        return awaited

    def _steps_for(self, where: Queues, *, claims: bool) -> NextSteps:
        worker, pid = self._process.id, os.getpid()
        of = (worker, claims, *where.names, None, *where.lists, None, *where.cold)
        if of not in self._steps:
            self._steps = {
                of: self._ledger.next_steps(
                    take_next_text(),
                    where,
                    worker=worker,
                    pid=pid,
                    longest=LONGEST if claims else 0,
                ),
                # The other one is that of a worker that is busy, or was.
                **dict(list(self._steps.items())[:1]),
            }
        return self._steps[of]

    def note_end(self, awaited: _Awaited) -> None:
        """Note that a wait has ended."""
        if self._awaited is awaited:
            self._awaited = None

    def note_lost(self, awaited: _Awaited) -> None:
        """Note that a wait's connection was lost."""
        self.note_end(awaited)
        self._lost.append(awaited)

    def arrival(
        self, awaited: _Awaited, task: NextTask, is_consumed: Callable[[str], bool]
    ) -> Arrival:
        """Return what has come, with its claim if its task begins at once; otherwise the claim is
        released.

        *is_consumed*: whether what is in a queue may begin here.
        """
        assert task.message is not None
        queue = unquoted(task.queue)
        delivery = Delivery(awaited.token, queue, task.message, awaited.worker)
        try:
            payload = payload_of(task.message)
        except Exception:
            # Whatever decoding raises; who delivers it decodes it again, and handles the error.
            payload = None
        if not isinstance(task.answer, answers.Claimed):
            awaited.is_under_way = False
            return Arrival(delivery, payload, None)
        is_free = is_consumed(queue) and self._process.id == awaited.worker
        if payload is None or not is_free or not self._early.may_begin(payload):
            # A claim was made by the id that the headers have as they are written.
            headers = payload["headers"] if payload else headers_as_written(task.message)
            self._release(awaited, task.answer, headers.get("id", ""))
            return Arrival(delivery, payload, None)
        early = EarlyClaim(
            self._early.request(payload, awaited.token), clock.now(), awaited, task.place
        )
        self._early.watch(awaited.token, early)
        return Arrival(delivery, payload, early)

    def _release(self, awaited: _Awaited, answer: answers.Claimed, task_id: str) -> None:
        """Release a claim by which nothing begins.  Its message stays filed."""
        awaited.give_up()
        if not task_id:
            # Whoever looks at the worker's claims releases it.
            return
        claim = Claim(task_id, answer.attempt, awaited.worker, awaited.token, answer.losses)
        try:
            self._ledger.release(
                claim, due_in_ms=self._due_in_ms, patience_seconds=PATIENCE_SECONDS
            )
        except (LedgerUnavailable, LedgerRefused) as error:
            logger.warning("claim_not_released id=%s error=%s", claim.task_id, error)
            return
        # There is nothing any more of which somebody could ask.
        awaited.is_given_up = False


@dataclass
class _Awaited(Watched):
    """A message that is waited for.  Its claim's token is its tag, too."""

    token: str
    #: The lease under which it is asked for.
    worker: str
    step: NextStep
    arrivals: Arrivals
    #: After that the server serves the lost connection no more (monotonic seconds); 0 while it is
    #: there.
    late_at: float = 0.0
    was_looked_for: bool = False

    @property
    def call(self) -> tuple[Any, ...]:
        """The arguments of EVALSHA."""
        return self.step.call

    @property
    def answer(self) -> Any:
        """What its claim was answered; None while nothing is known."""
        task = self.step.answer
        return task.answer if task is not None else None

    def hear(self, raw: Any, is_consumed: Callable[[str], bool]) -> Arrival | None:
        """Take the script's reply; return what has come, if anything."""
        self.arrivals.note_end(self)
        self.step.hear(raw)
        task = self.step.answer
        if task is None or task.message is None:
            self.is_under_way = False
            return None
        return self.arrivals.arrival(self, task, is_consumed)

    def fail(self, *, is_unknown: bool) -> None:
        """Note that the script was not run, as the server does not know it, or has failed."""
        self.arrivals.note_end(self)
        self.arrivals.is_known = not is_unknown
        if is_unknown:
            self.is_under_way = False
        else:
            # If the message was filed, it is given back, as the worker does not hold it.
            self.give_up()

    def lose(self, seconds: float) -> None:
        """Note that the connection was lost: nobody knows whether a message was filed, or is for so
        many seconds.
        """
        self.late_at = time.monotonic() + seconds + _LATE_SECONDS
        self.arrivals.note_lost(self)

    def is_to_be_looked_for(self, now: float) -> bool:
        """Whether it was never looked for, or could have come after that."""
        return not self.was_looked_for or now >= self.late_at

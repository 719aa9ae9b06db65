"""Arrivals: messages that are filed as they leave their queue, and claimed by the same step if a
process is idle.

The worker asks for the next one before it is there.  So the claim's token exists before the claim,
and answers for it from then on; what was decided when it asked is looked at again when the message
has come.  What cannot begin then is released, and waits as every other message that was fetched.

A process may begin by such a claim without asking only while the lease surely holds and hardly any
time has gone by.  Otherwise it asks, as it does for everything else: the claim's token gets it the
same attempt.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any

from celery.worker import state

from celery_reliable import clock
from celery_reliable.broker import Arrival, Delivery, Queues, unquoted
from celery_reliable.compat.notes import noted
from celery_reliable.compat.pool import n_processes_up
from celery_reliable.context import WorkerProcess
from celery_reliable.exceptions import LedgerRefused, LedgerUnavailable
from celery_reliable.ledger import LONGEST, NextStep, NextTask, answers
from celery_reliable.log import logger
from celery_reliable.message import headers_as_written, payload_of
from celery_reliable.model import Claim
from celery_reliable.options import is_limited, is_reliable
from celery_reliable.orders import Orders
from celery_reliable.pool import steps_of
from celery_reliable.publishing import TWINS
from celery_reliable.redis_io import refuses_writes
from celery_reliable.worker.claims import PATIENCE_SECONDS

if TYPE_CHECKING:
    from celery_reliable.worker.worker_step import WorkerStep

__all__ = ["Arrivals", "Awaited", "LeftOut"]


#: A server that is full lets nobody wait like that; for so long it is not asked.
_FULL_SECONDS = 10.0
#: More of those that were given up are not remembered: each is released within some seconds.
_MOST_GIVEN_UP = 200


def may_wait(c: Any, task: Any) -> bool:
    """Whether a worker may hold a task's message for long before it begins: for a rate limit, which
    a remote command may have set, or by a strategy of the user's.
    """
    return bool(
        c.task_buckets.get(task.name)
        or task.Strategy != "celery.worker.strategy:default"
        or is_limited(task)
    )


class LeftOut:
    """The names of the reliable tasks of a worker that *is_left_out* says true of, for the main
    loop; among them Celery's own tasks whose twins are reliable.

    They are asked for with each message that finds an idle process, so they are kept until an order
    is made or ends, a task is added, or a rate limit is set.
    """

    def __init__(self, process: WorkerProcess, is_left_out: Callable[[Any], bool]) -> None:
        self._process = process
        self._is_left_out = is_left_out
        #: By what the names were found: orders, how many tasks there are, and their rate limits.
        self._seen: tuple[Orders, int, list[Any]] | None = None
        self._names: list[str] = []

    def names(self, c: Any) -> list[str]:
        """Return the names, with the worker's consumer *c*; the same list while nothing changes."""
        orders, tasks = self._process.orders, c.app.tasks
        seen, now = self._seen, (orders, len(tasks), list(c.task_buckets.values()))
        if seen is None or seen[0] is not orders or seen[1:] != now[1:]:
            self._names = [
                # The name that messages have.
                TWINS.get(one.name, one.name)
                for one in tasks.values()
                if is_reliable(one) and (one.name in TWINS or self._is_left_out(one))
            ]
            self._seen = now
        return self._names


class Arrivals:
    """Those of one worker with a pool of processes; kept beyond a connection.  For the main
    loop.
    """

    def __init__(self, c: Any, step: WorkerStep) -> None:
        self._consumer = c
        self._step = step
        self._process = step.process
        self._ledger = step.reliable.ledger
        self._config = step.reliable.config
        self._left_out = LeftOut(step.process, self._is_left_out)
        #: What the tokens of its claims begin with, and their numbers.
        self._own, self._numbers = secrets.token_hex(8), count(1)
        #: What is under way or was given up, by its token.
        self._watched: dict[str, Awaited] = {}
        self._awaited: Awaited | None = None
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
        """Return the names of the reliable tasks that are filed and not claimed, whatever their
        messages say.

        One that may not be lost at all is among them: a worker that vanishes while it waits may
        have it claimed for a second yet, and it would be a dead letter that nobody has begun.
        """
        return self._left_out.names(self._consumer)

    def next(self, where: Queues) -> Awaited | None:
        """Return the next message to wait for; None when that cannot be now."""
        if not self.is_known and not self._teach(where):
            return None
        awaited = self._awaited = self._new(where, claims=self._has_idle_child())
        under_way = {t: one for t, one in self._watched.items() if one.is_under_way}
        given_up = [(t, one) for t, one in self._watched.items() if one.is_given_up]
        self._watched = {
            **dict(given_up[-_MOST_GIVEN_UP:]),
            **under_way,
            awaited.token: awaited,
        }
        return awaited

    def _teach(self, where: Queues) -> bool:
        """Let the server know the script, by a call that takes nothing; whether it does now."""
        nowhere = self._new(replace(where, names=(), lists=()), claims=True)
        try:
            self._ledger.take_next(nowhere.step, PATIENCE_SECONDS)
        except (LedgerUnavailable, LedgerRefused) as error:
            logger.info("arrivals_not_looked_for error=%s", error)
            return False
        self.is_known = True
        return True

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

    def begin_connection(self) -> None:
        """Note that the worker has connected anew: maybe to another server."""
        self.is_known = False
        if self._awaited is not None:
            self._awaited.give_up()

    # -- whose a claim is

    @property
    def tags(self) -> set[str]:
        """That under which a message may be filed of which the worker has not heard."""
        return {self._awaited.token} if self._awaited is not None else set()

    def is_under_way(self, token: str) -> bool:
        """Whether a claim's message is on its way to the pool."""
        awaited = self._watched.get(token)
        return awaited is not None and awaited.is_under_way

    def is_given_up(self, token: str) -> bool:
        """Whether nobody can have begun by this claim, if it was made at all."""
        awaited = self._watched.get(token)
        return awaited is not None and awaited.is_given_up

    def forget(self, requests: Iterable[Any]) -> None:
        """Note that the worker runs none of these *requests* any more, and has begun none: Celery
        drops what waits for its pool when it loses its connection.
        """
        for request in requests:
            early: Awaited | None = noted(request.message, "early")
            if early is not None:
                early.give_up()
                self._watched[early.token] = early

    # -- what has come

    def _new(self, where: Queues, *, claims: bool) -> Awaited:
        worker = self._process.id
        steps = steps_of(self._ledger, where, worker, os.getpid(), LONGEST if claims else 0)
        token = f"{self._own}{next(self._numbers):x}"
        step = steps.step(token, done="", filed_ms=int(time.time() * 1000))
        return Awaited(token, worker, step, self)

    def note_end(self, awaited: Awaited) -> None:
        """Note that a wait has ended."""
        if self._awaited is awaited:
            self._awaited = None

    def arrival(
        self, awaited: Awaited, task: NextTask, is_consumed: Callable[[str], bool]
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
        answer = task.answer
        if not isinstance(answer, answers.Claimed):
            awaited.is_under_way = False
            return Arrival(delivery, payload, None)
        # A claim was made by the id that the headers have as they are written.
        headers = payload["headers"] if payload else headers_as_written(task.message)
        claim = Claim(
            headers.get("id", ""), answer.attempt, awaited.worker, awaited.token, answer.losses
        )
        is_free = is_consumed(queue) and self._process.id == awaited.worker
        if payload is None or not is_free or not self._may_begin(headers):
            self._release(awaited, claim)
            return Arrival(delivery, payload, None)
        awaited.claim, awaited.place, awaited.came_at = claim, answer.place, clock.now()
        return Arrival(delivery, payload, awaited)

    def _may_begin(self, headers: dict[str, Any]) -> bool:
        """Whether a claimed task begins as soon as it is delivered: what the script has not seen in
        its message, and what may have changed since the worker began to wait.
        """
        task = self._consumer.app.tasks.get(headers.get("task"))
        return is_reliable(task) and not self._is_left_out(task) and self._has_idle_child()

    def _is_left_out(self, task: Any) -> bool:
        max_losses = type(task).max_losses
        return bool(
            # The ledger counts the time to run from the claim: the way to the pool is no part of
            # it.
            getattr(type(task), "time_to_run_seconds", None)
            or (self._config.max_losses if max_losses is None else max_losses) == 0
            # Which object a message is of says only its body.
            or self._process.orders.of_task(task.name)
            or may_wait(self._consumer, task)
        )

    def _has_idle_child(self) -> bool:
        """Whether a process is up and idle: new ones take a while.

        One that ends after so many tasks, or with so much memory, is not known to be gone at once.
        """
        worker = self._consumer.controller
        if worker.max_tasks_per_child or worker.max_memory_per_child:
            return False
        n_up = n_processes_up(self._consumer.pool)
        busy = len(state.reserved_requests) + len(self._step.shifts or ())
        return n_up is None or n_up > busy

    def _release(self, awaited: Awaited, claim: Claim) -> None:
        """Release a claim by which nothing begins.  Its message stays filed."""
        awaited.give_up()
        if not claim.task_id:
            # Whoever looks at the worker's claims releases it.
            return
        try:
            self._ledger.release(
                claim, due_in_ms=self._config.sweep_ms, patience_seconds=PATIENCE_SECONDS
            )
        except (LedgerUnavailable, LedgerRefused) as error:
            logger.warning("claim_not_released id=%s error=%s", claim.task_id, error)
            return
        # There is nothing any more of which somebody could ask.
        awaited.is_given_up = False


@dataclass(eq=False)
class Awaited:
    """A message that is waited for, and the claim that may be made as it comes: the token of that
    is the message's tag, too.  While no request stands behind the claim, who looks whether somebody
    runs it asks here.
    """

    token: str
    #: The lease under which it is asked for.
    worker: str
    step: NextStep
    arrivals: Arrivals
    #: Its message is on the way to the pool.
    is_under_way: bool = True
    #: The message could not be filed, or was dropped: nobody begins by the claim, if it was made.
    is_given_up: bool = False
    #: What was claimed, if its task begins at once, and when that was heard (`clock.now`).
    claim: Claim | None = None
    came_at: float = 0.0
    #: Which place of its object the task has since it was published, or its turn came; empty for
    #: none.
    place: str = ""

    @property
    def told(self) -> tuple[int, int, str, float, str] | None:
        """The claim in plain values, for a property of the message, which user code can see."""
        claim = self.claim
        if claim is None:
            return None
        return claim.attempt, claim.losses, claim.worker, self.came_at, self.place

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
        self.arrivals.is_known = not is_unknown
        self.give_up()

    def give_up(self) -> None:
        """Note that nobody will begin by it, whatever became of its message: if that was filed, or
        is yet, it is given back, as the worker does not hold it, and a claim is released.
        """
        self.arrivals.note_end(self)
        self.is_under_way, self.is_given_up = False, True

"""Early claims: what a worker can begin at once is claimed as its message is filed, in one round
trip, so that its process need not ask before it begins.

That is right only while the lease surely holds and hardly any time has gone by.  Otherwise the
process asks, as it does for everything else: the claim's token gets it the same attempt.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

from celery.worker import state

from celery_reliable import clock
from celery_reliable.app import reliable_of
from celery_reliable.compat.consumer import has_rate_limit
from celery_reliable.compat.notes import noted
from celery_reliable.compat.pool import n_processes_up
from celery_reliable.compat.tracer import has_default_strategy
from celery_reliable.context import WorkerProcess
from celery_reliable.exceptions import ReliableError
from celery_reliable.ledger import answers
from celery_reliable.log import logger
from celery_reliable.message import NAMED, NamedWorkers, Stamp, returns_of
from celery_reliable.model import Claim, ClaimRequest
from celery_reliable.options import (
    in_force,
    is_limited,
    is_per_object,
    is_reliable,
    rate_of,
    task_ref,
)
from celery_reliable.orders import Orders
from celery_reliable.publishing import TWINS
from celery_reliable.worker.claims import PATIENCE_SECONDS

__all__ = [
    "Answered",
    "EarlyClaim",
    "EarlyClaims",
    "EarlyMoments",
    "LeftOut",
    "Watched",
]


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


class Answered(Protocol):
    """Whatever hears what a claim was answered."""

    @property
    def answer(self) -> Any:
        """None while nothing is known."""


#: More of those that were given up are not remembered: each is released within some seconds.
_MOST_GIVEN_UP = 200


@dataclass(kw_only=True)
class Watched:
    """A claim behind which no request stands: who looks whether somebody runs it asks here."""

    #: Its message is on the way to the pool.
    is_under_way: bool = True
    #: The message could not be filed, or was dropped: nobody begins by the claim, if it was made.
    is_given_up: bool = False

    def give_up(self) -> None:
        """Note that nobody will begin by it."""
        self.is_under_way, self.is_given_up = False, True


@dataclass
class EarlyClaim(Watched):
    """A claim that is sent with the filing of its message."""

    request: ClaimRequest
    #: By `clock.now`.
    asked_at: float
    step: Answered
    #: Which place of its object the task has since it was published, or its turn came; empty for
    #: none.
    place: str = ""

    @property
    def claim(self) -> Claim | None:
        """What was claimed; None when nothing was, or nothing is known.  A process that claims
        again with the same token gets the same attempt.
        """
        answer = self.step.answer
        if not isinstance(answer, answers.Claimed):
            return None
        return self.request.claim(answer.attempt, answer.losses)

    @property
    def told(self) -> tuple[int, int, str, float, str] | None:
        """The same in plain values, for a property of the message, which user code can see."""
        claim = self.claim
        if claim is None:
            return None
        return claim.attempt, claim.losses, claim.worker, self.asked_at, self.place


class EarlyClaims:
    """Decides for one consumer which messages are claimed as they are filed."""

    def __init__(self, c: Any, process: WorkerProcess, n_shifts: Callable[[], int] = int) -> None:
        self._consumer = c
        self._process = process
        self._n_shifts = n_shifts
        self._ledger = reliable_of(c.app).ledger
        self._max_losses = reliable_of(c.app).config.max_losses
        #: What the tokens of its claims begin with, and their numbers.
        self._own, self._numbers = secrets.token_hex(8), count(1)
        #: What is under way or was given up, by its token.
        self._watched: dict[str, Watched] = {}
        self._left_out = LeftOut(process, self._is_left_out)

    def new_token(self) -> str:
        """Return the token of another claim."""
        return f"{self._own}{next(self._numbers):x}"

    def watch(self, token: str, watched: Watched) -> None:
        """Answer for a claim that is made, or may be, before there is a request behind it."""
        under_way = {t: e for t, e in self._watched.items() if e.is_under_way}
        given_up = [(t, e) for t, e in self._watched.items() if e.is_given_up]
        self._watched = {**dict(given_up[-_MOST_GIVEN_UP:]), **under_way, token: watched}

    def is_under_way(self, token: str) -> bool:
        """Whether a claim's message is on its way to the pool."""
        early = self._watched.get(token)
        return early is not None and early.is_under_way

    def is_given_up(self, token: str) -> bool:
        """Whether nobody can have begun by this claim, if it was made at all."""
        early = self._watched.get(token)
        return early is not None and early.is_given_up

    def forget(self, requests: Iterable[Any]) -> None:
        """Note that the worker runs none of these *requests* any more, and has begun none: Celery
        drops what waits for its pool when it loses its connection.
        """
        for request in requests:
            early: EarlyClaim | None = noted(request.message, "early")
            if early is not None:
                early.give_up()
                self._watched[early.request.token] = early

    def __call__(self, payload: dict[str, Any]) -> EarlyClaim | None:
        """Return the claim of a message that begins as soon as it is delivered; None for what waits
        in the worker for something.
        """
        if not self.may_begin(payload):
            return None
        request = self.request(payload, self.new_token())
        early = EarlyClaim(request, clock.now(), self._ledger.claim_step(request))
        self.watch(request.token, early)
        return early

    def request(self, payload: dict[str, Any], token: str) -> ClaimRequest:
        """Return the request to claim the task of a message that may begin."""
        headers = payload["headers"]
        stamp = Stamp.of(headers)
        task = self._consumer.app.tasks[headers["task"]]
        return ClaimRequest(
            task_ref(task, str(headers["id"]), headers),
            epoch=stamp.epoch,
            generation=stamp.generation,
            worker=self._process.id,
            token=token,
            pid=os.getpid(),
        )

    def may_begin(self, payload: dict[str, Any]) -> bool:
        """Whether a message's task may begin as soon as it is delivered, claimed already."""
        headers = payload.get("headers") or {}
        task = self._consumer.app.tasks.get(headers.get("task"))
        return not (
            not Stamp.of(headers).generation
            or not headers.get("id")
            or not is_reliable(task)
            or headers.get("eta")
            or not self._lets_claim(task)
            # The ledger counts the time to run from the claim: the way to the pool is no part of
            # it.
            or in_force(task, "time_to_run_seconds", headers)
            or not self.has_idle_child()
            # It came back from a dead worker: to read it may kill this one, before the task begins.
            or returns_of(payload)
            or (NAMED in headers and not self._may_run(headers))
        )

    def _lets_claim(self, task: Any) -> bool:
        return not (
            # Which object a message is of says only its body.
            self._process.orders.of_task(task.name)
            or has_rate_limit(self._consumer, task.name)
            or not has_default_strategy(task)
            # It asks for its moment first.
            or is_limited(task)
        )

    def _losses_allowed(self, task: Any) -> int:
        own = type(task).max_losses
        return int(self._max_losses if own is None else own)

    def left_out(self) -> list[str]:
        """Return the names of the reliable tasks that are not claimed as a worker waits for them,
        whatever their messages say.

        One that may not be lost at all is among them: a worker that vanishes while it waits may
        have it claimed for a second yet, and it would be a dead letter that nobody has begun.
        """
        return self._left_out.names(self._consumer)

    def _is_left_out(self, task: Any) -> bool:
        return bool(
            getattr(type(task), "time_to_run_seconds", None)
            or self._losses_allowed(task) == 0
            or not self._lets_claim(task)
        )

    def _may_run(self, headers: dict[str, Any]) -> bool:
        named = NamedWorkers.of(headers)
        return named is None or named.may_run(self._process.nodename)

    def has_idle_child(self) -> bool:
        """Whether a process is up and idle, where the pool has processes: new ones take a while.

        One that ends after so many tasks, or with so much memory, is not known to be gone at once.
        """
        worker = self._consumer.controller
        if worker.max_tasks_per_child or worker.max_memory_per_child:
            return False
        n_up = n_processes_up(self._consumer.pool)
        return n_up is None or n_up > len(state.reserved_requests) + self._n_shifts()


class EarlyMoments:
    """Asks for one consumer whether a message's task has to wait for its moment.

    Whose moment has come asks for it in its process, when that is about to begin it.
    """

    def __init__(self, c: Any, process: WorkerProcess) -> None:
        self._app = c.app
        self._process = process
        self._paces = reliable_of(c.app).ledger.paces

    def __call__(self, payload: dict[str, Any]) -> bool:
        """Whether the task of a message is parked: then the message has to be dropped."""
        headers = payload.get("headers") or {}
        name, task_id = headers.get("task"), headers.get("id")
        task: Any = self._app.tasks.get(name) if isinstance(name, str) else None
        if (
            not is_reliable(task)
            or not is_limited(task)
            # Which object it is of says only its body.
            or is_per_object(type(task).rate)
            or not isinstance(task_id, str)
            or task_id in state.revoked
            # It asks after its time, and where it may run.
            or headers.get("eta")
            or headers.get("expires")
            or NAMED in headers
        ):
            return False
        rate, epoch = rate_of(task, (), {}), Stamp.of(headers).epoch
        if rate is None or not epoch or not self._process.surely_holds(self._process.id):
            return False
        try:
            answer = self._paces.reserve(
                task_id,
                task.name,
                rate,
                epoch=epoch,
                only_to_wait=True,
                patience_seconds=PATIENCE_SECONDS,
            )
        except ReliableError:
            # Its process asks again, and waits longer.
            return False
        if not isinstance(answer, answers.ParkedUntil):
            return False
        logger.debug(
            "task_too_early name=%s id=%s until=%s", task.name, task_id, answer.due_ms / 1000
        )
        return True

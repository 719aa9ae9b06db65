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
from typing import Any

from celery.worker import state

from celery_reliable import clock
from celery_reliable.app import reliable_of
from celery_reliable.compat.consumer import has_rate_limit
from celery_reliable.compat.notes import noted
from celery_reliable.compat.pool import n_processes_up
from celery_reliable.compat.tracer import has_default_strategy
from celery_reliable.context import WorkerProcess
from celery_reliable.ledger import Step, answers
from celery_reliable.message import NAMED, NamedWorkers, Stamp, returns_of
from celery_reliable.model import Claim, ClaimRequest
from celery_reliable.options import in_force, is_limited, is_reliable, task_ref

__all__ = ["EarlyClaim", "EarlyClaims"]


@dataclass
class EarlyClaim:
    """A claim that is sent with the filing of its message."""

    request: ClaimRequest
    #: By `clock.now`.
    asked_at: float
    step: Step[answers.ClaimAnswer]
    #: Its message is on the way to the pool, and no request stands behind the claim yet.
    is_under_way: bool = True
    #: The message could not be filed, or was dropped: nobody begins by the claim, if it was made.
    is_given_up: bool = False

    def give_up(self) -> None:
        """Note that nobody will begin by it."""
        self.is_under_way, self.is_given_up = False, True

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
        # Nobody has looked which place of its object it has.
        return claim.attempt, claim.losses, claim.worker, self.asked_at, ""


class EarlyClaims:
    """Decides for one consumer which messages are claimed as they are filed."""

    def __init__(self, c: Any, process: WorkerProcess, n_shifts: Callable[[], int] = int) -> None:
        self._consumer = c
        self._process = process
        self._n_shifts = n_shifts
        self._ledger = reliable_of(c.app).ledger
        #: What the tokens of its claims begin with, and their numbers.
        self._own, self._numbers = secrets.token_hex(8), count(1)
        #: What is under way or was given up, by its token.
        self._watched: dict[str, EarlyClaim] = {}

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
        headers = payload.get("headers") or {}
        stamp = Stamp.of(headers)
        task = self._consumer.app.tasks.get(headers.get("task"))
        if (
            not stamp.generation
            or not headers.get("id")
            or not is_reliable(task)
            or headers.get("eta")
            # Which object it is of says only its body.
            or self._process.orders.of_task(task.name)
            or has_rate_limit(self._consumer, task.name)
            or not has_default_strategy(task)
            # The ledger counts the time to run from the claim: the way to the pool is no part of
            # it.
            or in_force(task, "time_to_run_seconds", headers)
            # It asks for its moment first.
            or is_limited(task)
            or not self.has_idle_child()
            # It came back from a dead worker: to read it may kill this one, before the task begins.
            or returns_of(payload)
            or (NAMED in headers and not self._may_run(headers))
        ):
            return None
        request = ClaimRequest(
            task_ref(task, str(headers["id"]), headers),
            epoch=stamp.epoch,
            generation=stamp.generation,
            worker=self._process.id,
            token=f"{self._own}{next(self._numbers):x}",
            pid=os.getpid(),
        )
        early = EarlyClaim(request, clock.now(), self._ledger.claim_step(request))
        watched = {t: e for t, e in self._watched.items() if e.is_under_way or e.is_given_up}
        self._watched = {**watched, request.token: early}
        return early

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

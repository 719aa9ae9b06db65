"""What a process takes in its shift, one message after the other, and what it settles with each."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import lru_cache

from celery_reliable import events
from celery_reliable.app import Reliable
from celery_reliable.attempt import free_object
from celery_reliable.broker import Queues, take_next_text
from celery_reliable.context import put_off
from celery_reliable.ledger import FOREVER, LONGEST, Ledger, NextStep, NextSteps, NextTask, answers
from celery_reliable.pool.shift import Shift
from celery_reliable.pool.task_pool import Telling

__all__ = ["Takings", "steps_of"]


@lru_cache(100)
def steps_of(
    ledger: Ledger, queues: Queues, worker: str, pid: int, longest: int = LONGEST
) -> NextSteps:
    """Return what makes the steps of a process: its next ones are mostly made of the same."""
    return ledger.next_steps(take_next_text(), queues, worker=worker, pid=pid, longest=longest)


class Takings:
    """Those of one shift.  *pid*: that of this process."""

    def __init__(self, shift: Shift, reliable: Reliable, telling: Telling, pid: int) -> None:
        self._ledger = reliable.ledger
        self._telling = telling
        self._pid = pid
        self._queues = shift.queues
        self._takes_turns = shift.takes_turns

    def next(self, tag: str, done: str, worker: str) -> NextTask:
        """Settle what is to be settled, remove *done*, and take the next; without a *tag* nothing
        is taken.
        """
        queues = self._queues
        if not tag:
            queues = replace(queues, names=(), lists=(), cold=())
        steps = steps_of(self._ledger, queues, worker, self._pid)
        return self._answer(steps.step(tag, done=done, filed_ms=int(time.time() * 1000)))

    def _answer(self, step: NextStep) -> NextTask:
        claim = put_off.claim
        if claim is None:
            # What it may have taken nobody else can run.
            return self._ledger.take_next(step, FOREVER)
        task, result, outcome = put_off.task, put_off.result, put_off.outcome
        put_off.clear()
        answer = self._ledger.settle(
            claim, result, outcome=outcome, along=step, patience_seconds=FOREVER
        )
        if isinstance(answer, answers.Fenced | answers.Gone):
            state = answer.state if isinstance(answer, answers.Fenced) else "gone"
            free_object(task, claim)
            events.task_fenced(task=task, task_id=claim.task_id, attempt=claim.attempt, state=state)
            self._telling.was_fenced()
        assert step.answer is not None
        return step.answer

    def rotate(self, queue: str) -> None:
        """Let a queue that has delivered come last in its priority."""
        queues = self._queues
        count = len(queues.names)
        if count < 2 or not self._takes_turns or queues.names[-1] == queue:
            return
        at = queues.names.index(queue)
        order = [*range(at), *range(at + 1, count), at]
        self._queues = replace(
            queues,
            names=tuple(queues.names[n] for n in order),
            lists=tuple(
                queues.lists[p + n] for p in range(0, len(queues.lists), count) for n in order
            ),
        )

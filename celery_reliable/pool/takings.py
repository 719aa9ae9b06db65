"""What a process takes in its shift, one message after the other, and what it settles with each."""

from __future__ import annotations

import time
from typing import Any

from celery_reliable import events
from celery_reliable.app import Reliable
from celery_reliable.attempt import free_object
from celery_reliable.broker import Queues, take_next_text
from celery_reliable.context import put_off
from celery_reliable.ledger import FOREVER, NextStep, NextSteps, NextTask, answers
from celery_reliable.pool.shift import Shift
from celery_reliable.pool.task_pool import Telling

__all__ = ["Takings"]

#: By all that they are made of: the shifts of a process mostly have the same.
_steps: dict[tuple[Any, ...], NextSteps] = {}
_MOST_STEPS = 100


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
            queues = Queues(queues.unacked, queues.listed, queues.name, (), ())
        filed_ms = int(time.time() * 1000)
        return self._answer(self._steps_for(queues, worker).step(tag, done=done, filed_ms=filed_ms))

    def _steps_for(self, queues: Queues, worker: str) -> NextSteps:
        where = (self._ledger, worker, self._pid, *queues.names, None, *queues.lists, *queues.cold)
        steps = _steps.get(where)
        if steps is None:
            if len(_steps) >= _MOST_STEPS:
                _steps.clear()
            steps = _steps[where] = self._ledger.next_steps(
                take_next_text(), queues, worker=worker, pid=self._pid
            )
        return steps

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
        self._queues = Queues(
            queues.unacked,
            queues.listed,
            queues.name,
            [queues.names[n] for n in order],
            [queues.lists[p + n] for p in range(0, len(queues.lists), count) for n in order],
            queues.cold,
        )

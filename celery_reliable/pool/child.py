"""A shift, in its process: take, run, settle with the next taking."""

from __future__ import annotations

import base64
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, lru_cache, partial
from resource import RUSAGE_SELF, getrusage
from typing import Any, TypeVar
from weakref import ReferenceType

from celery import signals
from celery.app import app_or_default, trace
from celery.exceptions import Reject, Retry
from celery.utils.log import get_logger
from kombu.compression import decompress
from kombu.serialization import loads, prepare_accept_content
from kombu.utils.encoding import str_to_bytes

from celery_reliable import clock, events
from celery_reliable.app import Reliable, reliable_of
from celery_reliable.attempt import (
    DELIVERY,
    EARLY,
    MESSAGE,
    Uninterrupted,
    free_object,
)
from celery_reliable.broker import Queues, take_text
from celery_reliable.compat.consumer import has_own_hook, run_as_prefork
from celery_reliable.context import current_worker, put_off
from celery_reliable.ledger import FOREVER, Ledger, TakenMessage, TakeSteps, answers
from celery_reliable.log import logger
from celery_reliable.message import (
    Envelope,
    Stamp,
    check_limits,
    headers_as_written,
    payload_of,
    seconds_until,
)
from celery_reliable.model import Claim, EarlyClaim
from celery_reliable.options import is_reliable, keep_ms
from celery_reliable.pool.prefork import Telling, own_life
from celery_reliable.pool.shift import (
    Left,
    Limited,
    Report,
    Shift,
    Slot,
    may_be_revoked,
    shifts_called_off,
    slot_of,
)
from celery_reliable.publishing import CARRIERS

__all__ = ["limits_heard", "run_limited", "take_steps_of", "work"]


@lru_cache(100)
def take_steps_of(
    ledger: Ledger, queues: Queues, worker: str, pid: int, slot: str = "main"
) -> TakeSteps:
    """Return what makes the steps of a process: its next ones are mostly made of the same.  *slot*:
    that of a shift.
    """
    return ledger.take_steps(take_text(), queues, worker=worker, slot=slot, pid=pid)


_T = TypeVar("_T")


@contextmanager
def limits_heard(shift: Shift) -> Iterator[None]:
    """Let no soft time limit interrupt another task than that whose limit it is."""
    heard: Any = signal.getsignal(signal.SIGUSR1)
    slot = slot_of(shift.slot)

    def hear(number: int, frame: Any) -> None:
        # A signal that the main process has not sent for a limit is for whatever runs.
        since, task = slot.meant, slot.limited
        slot.meant = 0.0
        if not since or (task is not None and task.since == since):
            heard(number, frame)

    signal.signal(signal.SIGUSR1, hear)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, heard)


def run_limited(slot: Slot, number: int, limits: tuple[float, float], run: Callable[[], _T]) -> _T:
    """Run a task, and let the main process know since when."""
    slot.begin_limited(Limited(time.monotonic(), number, *limits))
    outcome = run()
    # Not where the process is being stopped: the main process looks what it was about.
    slot.end_limited()
    return outcome


def work(shift: Shift) -> Report:
    """Take messages and run their tasks, until one of the shift's ends is reached."""
    # The tasks of a shift are counted one by one, and the job itself is none.
    own_life.begun -= 1
    put_off.may_wait = _nothing_between
    put_off.is_on = not _is_heard_after()
    try:
        # The limit is for bodies; else each task would block it by itself, and let it through.
        with Uninterrupted(), limits_heard(shift):
            working = _Working(shift)
            report = working.work()
            working.telling.close()
            return report
    finally:
        put_off.is_on = False


@cache
def _nothing_between(task: Any) -> bool:
    """Whether nothing of the user's runs between a task's outcome and the next taking."""
    return not (
        any(has_own_hook(task, hook) for hook in ("on_success", "after_return")) or keep_ms(task)
    )


def _is_heard_after() -> bool:
    """Whether user code in this process receives the signal of a task's success, or of its end."""
    for signal_ in (signals.task_success, signals.task_postrun):
        for _, receiver in signal_.receivers:
            found = receiver() if isinstance(receiver, ReferenceType) else receiver
            if found is not None and not str(found.__module__).startswith("celery."):
                return True
    return False


def _memory_kb() -> int:
    """Return the most memory that this process has used, as billiard measures it after a job."""
    return getrusage(RUSAGE_SELF).ru_maxrss // (1024 if sys.platform == "darwin" else 1)


def _as_sent(payload: dict[str, Any]) -> str | None:
    """Return a message that the ledger may not know, as text to be recorded."""
    try:
        return Envelope.from_payload(payload).to_text()
    except Exception as exc:
        # Anybody may publish anything.
        logger.warning("message_not_kept_as_sent error=%s", exc)
        return None


_strategy = get_logger("celery.worker.strategy")


def _log_received(task_id: str, name: str, headers: Mapping[str, Any]) -> None:
    """Log that a task was received, as Celery's main process does."""
    if _strategy.isEnabledFor(logging.INFO):
        context = {
            "id": task_id,
            "name": headers.get("shadow") or name,
            "args": headers.get("argsrepr", ""),
            "kwargs": headers.get("kwargsrepr", ""),
            "eta": None,
        }
        # Projects replace this text to change the line.
        _strategy.info(trace.LOG_RECEIVED, context, extra={"data": context})


@cache
def _app() -> tuple[Any, Reliable, Any]:
    """Return the app of this process, our part of it, and the content types that it decodes."""
    app = app_or_default()
    return app, reliable_of(app), prepare_accept_content(app.conf.accept_content)


class _Working:
    """One shift."""

    def __init__(self, shift: Shift) -> None:
        process = current_worker()
        assert process is not None
        self._shift = shift
        self._slot = slot_of(shift.slot)
        self._process = process
        self._app, reliable, self._accept = _app()
        self._ledger = reliable.ledger
        self._config = reliable.config
        self._report = Report()
        self.telling = Telling(shift, process)
        self._queues = shift.queues
        self._over_at = time.monotonic() + shift.seconds
        self._orders = process.told_version
        #: That of the message whose task runs.
        self._number = 0

    def work(self) -> Report:
        """Return what was done."""
        report, done, number = self._report, "", self._shift.after
        while True:
            is_over = self._is_over(has_run=number > self._shift.after)
            number += 1
            self._number = number
            self._slot.first, self._slot.last = number - 1, number
            tag = f"{self._shift.token}.{number}"
            asked_at, worker = clock.now(), self._process.id
            found = self._next("" if is_over else tag, done, worker)
            self._slot.first = number
            if found.message is None:
                return report
            self._rotate(found.queue)
            left, done = Left(tag, found.queue, found.message), tag
            if isinstance(found.answer, answers.Alone):
                # It may kill whoever opens it; its record outlives the message.
                task_id = headers_as_written(found.message).get("id")
                logger.info("delivery_dropped id=%s reply=%s", task_id, found.answer.word)
                continue
            if not self._run(left, found.claim(worker, tag, asked_at)):
                return report

    def _next(self, tag: str, done: str, worker: str) -> TakenMessage:
        """Settle what is to be settled, remove *done*, and take the next; without a *tag* nothing
        is taken.
        """
        queues = self._queues
        if not tag:
            queues = replace(queues, names=(), lists=(), cold=())
        steps = take_steps_of(self._ledger, queues, worker, os.getpid(), str(self._shift.slot))
        step = steps.step(tag, done=(done,) if done else (), filed_ms=int(time.time() * 1000))
        claim = put_off.claim
        if claim is None:
            # What it may have taken nobody else can run.
            return self._ledger.take(step, FOREVER)
        task, result, outcome = put_off.task, put_off.result, put_off.outcome
        put_off.clear()
        answer = self._ledger.settle(
            claim, result, outcome=outcome, along=step, patience_seconds=FOREVER
        )
        if isinstance(answer, answers.Fenced | answers.Gone):
            state = answer.state if isinstance(answer, answers.Fenced) else "gone"
            free_object(task, claim)
            events.task_fenced(task=task, task_id=claim.task_id, attempt=claim.attempt, state=state)
            self.telling.was_fenced()
        assert step.answer is not None
        return step.answer

    def _rotate(self, queue: str) -> None:
        """Let a queue that has delivered come last in its priority."""
        queues = self._queues
        count = len(queues.names)
        if count < 2 or not self._shift.takes_turns or queues.names[-1] == queue:
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

    def _is_over(self, *, has_run: bool) -> bool:
        shift = self._shift
        return (
            shifts_called_off() != shift.called_off
            or time.monotonic() >= self._over_at
            or os.getppid() != self._process.pid
            or self._process.told_version != self._orders
            or own_life.is_over
            # One that began with less has to run something, or nobody ever would.
            or bool(shift.max_memory_kb and has_run and _memory_kb() > shift.max_memory_kb)
        )

    def _run(self, found: Left, early: EarlyClaim | None) -> bool:
        """Run the task of a message; False when the main process has to go on.

        *early*: the claim that was made with the taking.  Without one the task is claimed as it
        begins, or ends without an attempt.
        """
        payload, body = self._read(found.message)
        self._slot.opened = self._number
        if body is None:
            # The main process does with it what it does with every such message.
            if early is not None:
                self._give_up(early.of(headers_as_written(found.message).get("id", "")))
            self._report.left = found
            return False
        headers, properties = payload["headers"], payload["properties"]
        task_id, name = headers["id"], headers["task"]
        task = self._app.tasks[name]
        _log_received(task_id, name, headers)
        info = properties.get("delivery_info") or {}
        request = {
            **headers,
            "properties": {
                **properties,
                DELIVERY: found.tag,
                EARLY: early and tuple(early),
                MESSAGE: None if Stamp.of(headers).generation else _as_sent(payload),
            },
            "reply_to": properties.get("reply_to"),
            "correlation_id": properties.get("correlation_id"),
            "delivery_info": {
                "exchange": info.get("exchange"),
                "routing_key": info.get("routing_key"),
                "priority": properties.get("priority"),
                "redelivered": info.get("redelivered", False),
            },
        }
        is_shown = name in self._shift.shown
        self.telling.begins(task, found, headers, is_shown=is_shown)
        own_life.begun += 1
        if not is_shown:
            self._report.begun[name] = self._report.begun.get(name, 0) + 1
        outcome = self._limited(headers, partial(run_as_prefork, name, task_id, request, body))
        if outcome[0] and not self._has_ended(found, task_id, outcome, is_shown=is_shown):
            return False
        self.telling.has_ended(task, task_id, found.tag, outcome, is_shown=is_shown)
        return True

    def _read(self, message: bytes) -> tuple[dict[str, Any], tuple[Any, Any, Any] | None]:
        """Return a message, and its arguments with what is embedded; None for these where the main
        process has to look at it.
        """
        payload: dict[str, Any] = {}
        try:
            payload = payload_of(message)
            headers = payload["headers"]
            if Stamp.of(headers).generation:
                headers["task"] = CARRIERS.get(headers["task"], headers["task"])
            task = self._app.tasks.get(headers["task"])
            if (
                not is_reliable(task)
                or task.name in self._shift.left_out
                or may_be_revoked(headers["id"], has_stamps=bool(headers.get("stamped_headers")))
                or (headers.get("expires") and not seconds_until(headers["expires"]))
            ):
                return payload, None
            check_limits(headers.get("timelimit"))
            seconds_until(headers.get("eta"))
            return payload, self._body(payload)
        except Exception:
            # Whatever decoding raises; the main process decodes it again, and handles the error.
            return payload, None

    def _body(self, payload: dict[str, Any]) -> tuple[Any, Any, Any] | None:
        """Return the arguments of a message, and what is embedded; None if it has none.  Raises
        what decoding raises.
        """
        body: Any = payload["body"]
        if payload["properties"].get("body_encoding") == "base64":
            body = base64.b64decode(body)
        compression = payload["headers"].get("compression")
        if compression:
            body = decompress(str_to_bytes(body), compression)
        args, kwargs, embed = loads(
            body, payload["content-type"], payload["content-encoding"], accept=self._accept
        )
        is_call = isinstance(args, list | tuple) and isinstance(kwargs, dict)
        return (args, kwargs, embed) if is_call and isinstance(embed, dict | None) else None

    def _limited(self, headers: Mapping[str, Any], run: Callable[[], _T]) -> _T:
        """Run a task within the limits of its message, or else those of the task."""
        hard, soft = headers.get("timelimit") or (None, None)
        of_task = self._shift.limits.get(headers["task"], (0.0, 0.0))
        limits = soft or of_task[0], hard or of_task[1]
        return run_limited(self._slot, self._number, limits, run) if any(limits) else run()

    def _has_ended(
        self, found: Left, task_id: str, outcome: tuple[int, Any, float], *, is_shown: bool
    ) -> bool:
        """Whether only the message is left of a task that did not succeed."""
        error = getattr(outcome[1].exception, "exc", outcome[1].exception)
        if isinstance(error, Reject | SystemExit | KeyboardInterrupt) or (
            # It was revoked as it ran, and nobody may remember that when it comes back.
            isinstance(error, Retry) and may_be_revoked(task_id, has_stamps=False)
        ):
            self._report.left = Left(found.tag, found.queue, found.message, outcome)
            return False
        return True

    def _give_up(self, claim: Claim) -> None:
        """Release a claim by which nothing has begun."""
        self._ledger.release(claim, due_in_ms=self._config.sweep_ms, patience_seconds=FOREVER)

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
from functools import cache, partial
from resource import RUSAGE_SELF, getrusage
from typing import Any, TypeVar
from weakref import ReferenceType

from celery import signals
from celery.app import app_or_default, trace
from celery.exceptions import Ignore, Reject, Retry
from celery.utils.log import get_logger
from kombu.serialization import loads, prepare_accept_content

from celery_reliable import clock
from celery_reliable.app import Reliable, reliable_of
from celery_reliable.attempt import (
    DELIVERY,
    EARLY,
    MESSAGE,
    NotBegun,
    Uninterrupted,
)
from celery_reliable.compat.tracer import has_own_hook, run_as_prefork
from celery_reliable.context import current_worker, put_off
from celery_reliable.ledger import FOREVER, answers
from celery_reliable.message import headers_as_written, payload_of
from celery_reliable.model import Claim
from celery_reliable.options import keep_ms
from celery_reliable.pool.shift import (
    Left,
    Limited,
    Report,
    Shift,
    Slot,
    shifts_called_off,
    slots,
)
from celery_reliable.pool.takings import Takings
from celery_reliable.pool.task_pool import Telling, own_life

__all__ = [
    "limits_heard",
    "run_limited",
    "work",
]

_T = TypeVar("_T")


@contextmanager
def limits_heard(shift: Shift) -> Iterator[None]:
    """Let no soft time limit interrupt another task than that whose limit it is."""
    if not shift.limits:
        yield
        return
    heard: Any = signal.getsignal(signal.SIGUSR1)
    slot = slots[shift.slot]

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
        self._slot = slots[shift.slot]
        self._process = process
        self._app, reliable, self._accept = _app()
        self._ledger = reliable.ledger
        self._config = reliable.config
        self._report = Report()
        self.telling = Telling(shift, process)
        self._takings = Takings(shift, reliable, self.telling, os.getpid())
        self._over_at = time.monotonic() + shift.seconds
        self._orders = process.told_version
        #: That of the message whose task runs.
        self._number = 0

    def work(self) -> Report:
        """Return what was done."""
        report, done, number = self._report, "", 0
        while True:
            is_over = self._is_over(number)
            number += 1
            self._number = number
            self._slot.first, self._slot.last = number - 1, number
            tag = f"{self._shift.token}.{number}"
            asked_at, worker = clock.now(), self._process.id
            found = self._takings.next("" if is_over else tag, done, worker)
            self._slot.first = number
            if found.message is None:
                report.found_nothing = not is_over and found.has_lease
                return report
            if not isinstance(found.answer, answers.Claimed):
                report.left = Left(tag, found.queue, found.message)
                return report
            self._takings.rotate(found.queue)
            answer, done = found.answer, tag
            # The id is in the message.
            claim = Claim("", answer.attempt, worker, tag, answer.losses)
            left = Left(tag, found.queue, found.message)
            if not self._run(claim, left, asked_at, answer.place):
                return report

    def _is_over(self, number: int) -> bool:
        shift = self._shift
        return (
            shifts_called_off() != shift.called_off
            or time.monotonic() >= self._over_at
            or os.getppid() != self._process.pid
            or self._process.told_version != self._orders
            or own_life.is_over
            # One that began with less has to run something, or nobody ever would.
            or bool(shift.max_memory_kb and number and _memory_kb() > shift.max_memory_kb)
        )

    def _run(self, claim: Claim, found: Left, asked_at: float, place: str = "") -> bool:
        """Run the task of a message; False when the main process has to go on."""
        try:
            payload = payload_of(found.message)
        except Exception:
            # Whatever decoding raises; the main process decodes it again, and handles the error.
            self._give_up(claim, headers_as_written(found.message).get("id", ""))
            self._report.left = found
            return False
        headers, properties = payload["headers"], payload["properties"]
        task_id, name = headers["id"], headers["task"]
        arguments = self._arguments(payload)
        if arguments is None or name not in self._app.tasks or task_id in self._shift.revoked:
            # The main process does with it what it does with every such message.
            self._give_up(claim, task_id)
            self._report.left = found
            return False
        _log_received(task_id, name, headers)
        info = properties.get("delivery_info") or {}
        request = {
            **headers,
            "properties": {
                **properties,
                DELIVERY: claim.token,
                EARLY: (claim.attempt, claim.losses, claim.worker, asked_at, place),
                MESSAGE: None,
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
        self.telling.begins(self._app.tasks[name], found, headers)
        self._report.begun[name] = self._report.begun.get(name, 0) + 1
        own_life.begun += 1
        limits = self._shift.limits.get(name)
        if limits is None:
            outcome = run_as_prefork(name, task_id, request, arguments)
        else:
            run = partial(run_as_prefork, name, task_id, request, arguments)
            outcome = run_limited(self._slot, self._number, limits, run)
        if outcome[0] and not self._has_ended(found, outcome, outcome[1]):
            return False
        self.telling.has_ended(self._app.tasks[name], task_id, found.tag, outcome)
        return True

    def _arguments(self, payload: dict[str, Any]) -> tuple[Any, Any, Any] | None:
        """Return the arguments of a message, and what is embedded; None if it cannot be decoded."""
        body = payload["body"]
        try:
            if payload["properties"].get("body_encoding") == "base64":
                body = base64.b64decode(body)
            args, kwargs, embed = loads(
                body, payload["content-type"], payload["content-encoding"], accept=self._accept
            )
            is_call = isinstance(args, list | tuple) and isinstance(kwargs, dict)
            is_call = is_call and isinstance(embed, dict | None)
            return (args, kwargs, embed) if is_call else None
        except Exception:
            # Whatever decoding raises.
            return None

    def _has_ended(self, found: Left, outcome: Any, retval: Any) -> bool:
        """Whether only the message is left of a task that did not succeed."""
        error = getattr(retval.exception, "exc", retval.exception)
        is_called_off = shifts_called_off() != self._shift.called_off
        if isinstance(error, Reject | SystemExit | KeyboardInterrupt) or (
            # It may have been revoked, and nobody may remember that when it comes back.
            isinstance(error, Retry) and is_called_off
        ):
            self._report.left = Left(found.tag, found.queue, found.message, outcome)
            return False
        if isinstance(error, NotBegun):
            self._report.not_begun += 1
        elif not isinstance(error, (Retry, Ignore)):
            self._report.failed += 1
        return True

    def _give_up(self, claim: Claim, task_id: str) -> None:
        """Release a claim by which nothing has begun."""
        claim = Claim(task_id, claim.attempt, claim.worker, claim.token, claim.losses)
        self._ledger.release(claim, due_in_ms=self._config.sweep_ms, patience_seconds=FOREVER)

"""Calls of scripts: how often they are repeated, and which errors they raise."""

from __future__ import annotations

import random
import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, TypeVar

import redis
from redis import exceptions as errors

from celery_reliable.exceptions import (
    LedgerForbidden,
    LedgerRefused,
    LedgerUnavailable,
)
from celery_reliable.ledger.answers import Newer, OtherGeneration
from celery_reliable.ledger.calls import Calls
from celery_reliable.ledger.schema import Keys
from celery_reliable.ledger.transitions import A, Step
from celery_reliable.log import logger
from celery_reliable.native_threads import fork_gate
from celery_reliable.redis_io import Line, is_of_cluster, is_transient, is_undone

__all__ = [
    "FOREVER",
    "FORMAT",
    "Caller",
    "Part",
    "clock_of",
    "is_forbidden",
    "ms_of",
    "no_answer",
    "refusal_of",
    "said",
]


def clock_of(keys: Keys) -> list[tuple[Any, ...]]:
    """Return the two commands that ask for the ledger's time; `ms_of` reads their replies."""
    return [("TIME",), ("HMGET", keys.clock, "offset_ms", "latest_ms")]


def ms_of(time: tuple[int, int], kept: Sequence[bytes | None]) -> int:
    """Return the ledger's time in ms, as scripts reckon it (`redis_io.by_position`)."""
    seconds, micros = time
    offset_ms, latest_ms = (int(one or 0) for one in kept)
    return max(int(seconds) * 1000 + int(micros) // 1000 + offset_ms, latest_ms)


#: How a user's missing right reads from the middle of a script, from Redis 6.2 to Valkey 9.
_FORBIDDEN_REPLY = re.compile(r"NOPERM|ACL failure in script|user executing the script can't")
_NOTHING = "Nothing was sent, or what was sent was refused."
_UNKNOWN = "Whether the step was executed is unknown."


def refusal_of(
    exc: BaseException,
    operation: str,
    shown: str,
    step: Step[Any] | None = None,
    *,
    waits_for_memory: bool = False,
    waits_for_right: bool = False,
) -> LedgerRefused | None:
    """Return what to raise for an error that no repetition mends; None: repeat the call.

    *waits_for_memory*: also a server that is full, or no master, is waited for.
    *waits_for_right*: also an operator who adds a right.
    """
    at = f"The ledger's Redis at {shown}"
    if isinstance(exc, errors.DataError):
        # redis-py raised it: the arguments cannot be sent.
        return LedgerRefused(
            f"{operation!r} was not sent to the ledger's Redis at {shown}: {exc} Nothing was "
            "changed.",
            operation=operation,
        )
    kind = LedgerRefused
    if is_forbidden(exc):
        if waits_for_right:
            return None
        keys = f" with the keys {', '.join(step.keys)}" if step is not None else ""
        kind = LedgerForbidden
        why = (
            f"{at} does not let its user do {operation!r}{keys}: {exc}. The documentation has the "
            "rule that such a user needs (a user of Redis with few rights)."
        )
    elif is_of_cluster(exc):
        why = (
            f"{at} is a node of a Redis Cluster, which is not supported ({operation}: {exc}). "
            "Nothing was changed. Let REDIS_URL name a Redis that is none."
        )
    elif is_transient(exc) or waits_for_memory:
        return None
    else:
        why = (
            f"{at} refused {operation!r}: {exc}. Nothing was changed. It must be a writable "
            "master with maxmemory-policy noeviction, with enough memory."
        )
    return kind(why, operation=operation, reply=str(exc))


def no_answer(
    exc: BaseException, operation: str, shown: str, is_undone: bool = True
) -> LedgerUnavailable:
    """Return what to raise when the patience has run out."""
    return LedgerUnavailable(
        f"The ledger's Redis at {shown} did not answer ({operation}): {said(exc)}. "
        f"{_NOTHING if is_undone else _UNKNOWN} Check that the server is up, that it is the "
        "master, and that REDIS_URL names it.",
        operation=operation,
        is_undone=is_undone,
    )


def is_forbidden(exc: BaseException) -> bool:
    """Whether an error says that the user lacks a right, or has a wrong password."""
    # redis-py counts a wrong password among the connection errors, but it does not pass.
    if isinstance(exc, (errors.NoPermissionError, errors.AuthenticationError)):
        return True
    return isinstance(exc, errors.ResponseError) and bool(_FORBIDDEN_REPLY.search(str(exc)))


def said(exc: BaseException) -> str:
    """Return an error's text without the list of Sentinels that redis-py appends."""
    return str(exc).partition(" : ")[0].rstrip(".")


T = TypeVar("T")

#: The patience of callers that cannot go on without the ledger.
FOREVER = float("inf")

_FIRST_WAIT_SECONDS = 0.02
_LONGEST_WAIT_SECONDS = 1.0
_WARN_EVERY_SECONDS = 10.0

#: The format that this release reads and writes.  All of a namespace has one format: its records,
#: indexes and locks, and the stamps of its messages; the field ``format`` of ``meta`` has its
#: number.  More fields, keys and answers are no other format, as releases ignore those that they do
#: not know.  A format is another one when a release that does not know it would misread what stands
#: there.  The number is raised only when every worker knows the new format (its facts say so), and
#: in one step with a new generation: publishers learn of a format with the generation.
FORMAT = 1


class _Reader(redis.Redis):
    """redis-py's commands, sent over a caller's own connections."""

    def __init__(self, ask: Callable[..., Any], client: redis.Redis) -> None:
        super().__init__(connection_pool=client.connection_pool)
        self._ask = ask

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Return what a command is answered."""
        # Some of redis-py's commands are two words.
        return self.made(args, self._ask(*str(args[0]).split(), *args[1:]), **options)

    def made(self, command: Sequence[Any], reply: Any, **options: Any) -> Any:
        """Return a reply as redis-py gives it."""
        options.pop("keys", None)
        make = self.response_callbacks.get(command[0])
        return reply if make is None else make(reply, **options)


class Caller:
    """Runs scripts and reads on one client.  Turns redis-py's errors into the package's."""

    def __init__(
        self, client: redis.Redis, shown: str, patience_seconds: float, *, meta: str = ""
    ) -> None:
        """*meta*: the key of a namespace whose format is looked at before anything else is asked,
        once.  This is for operators, who come and go: workers and publishers hear it with what they
        do anyway.
        """
        self.client = client
        self._unchecked_meta = meta
        #: Connections that no thread uses now; None if the client has one connection of its own.
        self._lines: deque[Line] | None = deque() if client.connection is None else None
        self._reader = _Reader(self._asked, client)
        self.shown = shown
        self.patience_seconds = patience_seconds

    def run(
        self,
        step: Step[A],
        patience_seconds: float | None = None,
        undone_patience_seconds: float | None = None,
    ) -> A:
        """Send a step and return its answer.

        When a connection or a reply is lost, the call is repeated for *patience_seconds* (by
        default those of the Caller), then LedgerUnavailable is raised.  Every script may be
        repeated.  When the server answers with an error, LedgerRefused is raised, or
        LedgerForbidden if the user lacks a right.  FOREVER also waits for a server that is full;
        it does not wait longer than the default for a right.

        While it is certain that no server has taken it, it is repeated for
        *undone_patience_seconds* instead.  LedgerRefused is also raised in a namespace of a newer
        format.
        """
        raw, is_repeated = self._repeated(
            step.code.name,
            lambda: self._sent(step),
            patience_seconds,
            step,
            undone_patience_seconds,
        )
        answer = step.transition.read(raw, is_repeated)
        if isinstance(answer, Newer | OtherGeneration):
            self._refuse_newer(answer.format, step.keys[0], step.code.name)
        return answer

    def run_all(self, steps: Sequence[Step[A]]) -> list[A]:
        """Send steps of one script in two round trips, and return the answer of each.

        Each is a step of its own, so some may have been executed when this raises.  Raises what
        `run` raises.
        """
        if not steps:
            return []

        def run() -> list[Any]:
            # It loads the script: within a pipeline it is too late for that.
            found = [self._sent(steps[0])]
            pipe = self.client.pipeline(transaction=False)
            for step in steps[1:]:
                pipe.evalsha(*step.call)
            for step, reply in zip(steps[1:], pipe.execute(raise_on_error=False), strict=True):
                # Somebody may have flushed the scripts meanwhile.
                found.append(self._sent(step) if isinstance(reply, errors.NoScriptError) else reply)
                if isinstance(found[-1], Exception):
                    raise found[-1]
            return found

        found, is_repeated = self._repeated(steps[0].code.name, run, None, steps[0])
        return [
            step.transition.read(raw, is_repeated) for step, raw in zip(steps, found, strict=True)
        ]

    def with_patience(self, seconds: float) -> Caller:
        """Return one that waits so long for an answer, over the same connections."""
        other = copy(self)
        other.patience_seconds = seconds
        return other

    def close(self) -> None:
        """Close the connections.  They are opened again when something is asked."""
        while self._lines:
            self._lines.pop().close()
        if self._lines is None:
            single: Any = self.client.connection
            single.disconnect()
            single.close_left_open()
            return
        self.client.close()
        self.client.connection_pool.disconnect()

    def _sent(self, step: Step[A]) -> Any:
        try:
            return self._asked("EVALSHA", *step.call)
        except errors.NoScriptError:
            return self._asked("EVAL", step.code.text, *step.call[1:])

    def _asked(self, *command: Any) -> Any:
        return self._asked_all([command])[0]

    def _asked_all(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """Return the replies in one round trip; raises the first that is an error."""
        if self._lines is None:
            return [self.client.execute_command(*command) for command in commands]
        try:
            line = self._lines.pop()
        except IndexError:
            line = Line(self.client.connection_pool)
        try:
            replies = line.ask(*commands)
        finally:
            self._lines.append(line)
        for reply in replies:
            if isinstance(reply, Exception):
                try:
                    raise reply
                finally:
                    # Else this frame and the error keep each other, and all that its callers hold.
                    del reply, replies
        return replies

    def read(self, what: str, run: Callable[[Any], T], patience_seconds: float | None = None) -> T:
        """Return what *run* reads with the client.  Raises what `run` raises."""
        client = self.client if self._lines is None else self._reader
        return self._repeated(what, lambda: run(client), patience_seconds)[0]

    def read_all(
        self, what: str, commands: Sequence[tuple[Any, ...]], patience_seconds: float | None = None
    ) -> list[Any]:
        """Return the replies to *commands*, which only read, in one round trip; without any there
        is none.  Raises what `run` raises.
        """

        def run(_: Any) -> list[Any]:
            replies = self._asked_all(commands)
            if self._lines is None:
                return replies
            return [self._reader.made(*pair) for pair in zip(commands, replies, strict=True)]

        return self.read(what, run, patience_seconds) if commands else []

    def _repeated(
        self,
        operation: str,
        run: Callable[[], T],
        patience_seconds: float | None,
        step: Step[Any] | None = None,
        undone_patience_seconds: float | None = None,
    ) -> tuple[T, bool]:
        patience = self.patience_seconds if patience_seconds is None else patience_seconds
        # The patience while it is certain that no server has taken it.
        short = patience if undone_patience_seconds is None else undone_patience_seconds
        is_nothing_done = True
        started = warned = time.monotonic()
        wait = _FIRST_WAIT_SECONDS
        is_repeated = False
        # Another thread may be waiting to fork.  It can now: this one holds no lock.
        fork_gate.let_fork()
        while True:
            try:
                if self._unchecked_meta:
                    self._check_format(operation)
                return run(), is_repeated
            except (errors.RedisError, OSError) as exc:
                now = time.monotonic()
                refusal = refusal_of(
                    exc,
                    operation,
                    self.shown,
                    step,
                    # FOREVER waits until an operator has helped: a task must not fail because the
                    # server is full.
                    waits_for_memory=patience == FOREVER,
                    waits_for_right=patience == FOREVER and now - started < self.patience_seconds,
                )
                if refusal is not None:
                    raise refusal from exc
                is_nothing_done = is_nothing_done and is_undone(exc)
                left = started + (min(short, patience) if is_nothing_done else patience) - now
                if left <= 0:
                    raise no_answer(exc, operation, self.shown, is_nothing_done) from exc
                if now - warned >= _WARN_EVERY_SECONDS:
                    warned = now
                    logger.warning(
                        "ledger_waiting operation=%s seconds=%s address=%s error=%s",
                        operation,
                        now - started,
                        self.shown,
                        f"{type(exc).__name__}: {said(exc)}",
                    )
                is_repeated = True
                time.sleep(min(wait * random.uniform(0.5, 1.0), left))
                wait = min(wait * 2, _LONGEST_WAIT_SECONDS)

    def _check_format(self, operation: str) -> None:
        found: Any = self.client.hget(self._unchecked_meta, "format")
        self._refuse_newer((found or b"").decode(), self._unchecked_meta, operation)
        self._unchecked_meta = ""

    def _refuse_newer(self, found: str, key: str, operation: str) -> None:
        """Raise LedgerRefused if the namespace of *key* is in the format *found*, and that is a
        newer one.  No release writes what is no number.
        """
        if not found.isdecimal() or int(found) <= FORMAT:
            return
        raise LedgerRefused(
            f"The ledger's Redis at {self.shown} has the namespace "
            f"{key.partition(':')[0].strip('{}')!r} in format {found}, and this release of "
            f"celery_reliable knows format {FORMAT}: a newer one writes there. Nothing was done "
            f"({operation}). Upgrade celery_reliable here, or give this app a NAMESPACE of its "
            "own.",
            operation=operation,
        )


class Part:
    """Some transitions and reads of the ledger.  All raise LedgerUnavailable and LedgerRefused."""

    def __init__(self, caller: Caller, keys: Keys) -> None:
        self._caller = caller
        self.keys = keys
        self.calls = Calls(keys)

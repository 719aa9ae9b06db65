"""The step of a process that takes its own messages: it takes one and begins its attempt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from celery_reliable.ledger import attempts
from celery_reliable.ledger.answers import ClaimAnswer
from celery_reliable.ledger.scripts import inside, script
from celery_reliable.ledger.transition_group import TransitionGroup
from celery_reliable.ledger.transitions import Argument, Step, encoded
from celery_reliable.ledger.workers import ALONE_MS

__all__ = ["Filing", "NextAttempts", "NextStep", "NextTask"]

#: Messages of more bytes are not looked into by the script, which would keep others waiting.
_LONGEST = 256 * 1024


class Filing(Protocol):
    """Where messages are taken from, and where they are filed.  Keys are whole."""

    @property
    def unacked(self) -> str:
        """The key of the unacked hash."""

    @property
    def listed(self) -> str:
        """The key of the list of unacked hashes."""

    @property
    def name(self) -> str:
        """The name that the hash has there."""

    @property
    def names(self) -> Sequence[str]:
        """The names of the queues, as an unacked hash has them."""

    @property
    def lists(self) -> Sequence[str]:
        """Their lists: all of the first priority, then all of the next."""

    @property
    def cold(self) -> Sequence[str]:
        """Names of tasks whose messages are not claimed as they are taken."""


@dataclass(frozen=True)
class NextTask:
    """What was taken.  *message* is None when nothing was: the queues are empty, or the worker has
    lost its lease.  *answer* is None when the task was not claimed.
    """

    queue: str = ""
    message: bytes | None = None
    answer: ClaimAnswer | None = None
    has_lease: bool = True


class _Reading:
    """Reads the replies of ``take_next``, as a `Transition` does."""

    name = "take_next"

    def read(self, raw: Any, is_repeated: bool = False) -> NextTask:
        kind = raw[0]
        if kind in (b"empty", b"no_lease"):
            return NextTask(has_lease=kind == b"empty")
        answer = attempts.CLAIM.read(raw[3], is_repeated) if kind == b"asked" else None
        return NextTask(raw[1].decode(), raw[2], answer)


_READING = _Reading()


class NextStep(Step[Any]):
    """One taking.  Its answer is a `NextTask`."""

    answer: NextTask | None

    def __init__(self, text: str, keys: Sequence[Argument], args: Sequence[Argument]) -> None:
        self.transition: Any = _READING
        self.code = inside(script("claim"), "take_next", text)
        values = [encoded(one) if isinstance(one, str) else one for one in (*keys, *args)]
        self.call = (self.code.sha, len(keys), *values)
        self.answer = None


class NextAttempts(TransitionGroup):
    """How a process that takes its own messages begins an attempt."""

    def next_step(
        self,
        text: str,
        queues: Filing,
        *,
        tag: str,
        done: str,
        filed_ms: int,
        owner: tuple[str, int],
    ) -> NextStep:
        """Return the step that files the next message under *tag*, which is the token of its claim
        as well, and removes the one that was filed under *done*.

        *text*: the script of the broker's that takes.  *filed_ms*: by the worker's clock.
        *owner*: the worker's id, and the pid of this process.
        """
        worker, pid = owner
        return NextStep(
            text,
            [
                queues.unacked,
                queues.listed,
                self.keys.due,
                self.keys.meta,
                self.keys.worker(worker),
                self.keys.claims(worker),
                *queues.lists,
            ],
            [
                tag,
                done,
                filed_ms,
                queues.name,
                self.keys.record(""),
                worker,
                pid,
                ALONE_MS,
                "\n".join(("", *queues.cold, "")),
                _LONGEST,
                *queues.names,
            ],
        )

    def take_next(self, step: NextStep, patience_seconds: float | None = None) -> NextTask:
        """Run such a step by itself.  Raises LedgerUnavailable and LedgerRefused."""
        answer: NextTask = self._caller.run(step, patience_seconds)
        return answer

"""A shift: a job of the pool in which a process takes messages by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from celery_reliable.broker import Queues

__all__ = ["Given", "Left", "Report", "Shift"]


class Given(NamedTuple):
    """The message with which a shift begins: the main process has popped it, and not filed it."""

    #: As the unacked hash has it.
    queue: str
    message: bytes


@dataclass(frozen=True)
class Shift:
    """What a process is told that takes messages by itself."""

    #: What the tags of its messages, and so the tokens of its claims, begin with.
    token: str
    #: Where in shared memory it notes how far it has come.
    slot: int
    #: All in the order in which they are asked first.
    queues: Queues
    #: Whether a queue that has delivered comes last among those of its priority.
    takes_turns: bool
    #: It ends when more was called off than that.
    called_off: int
    #: It takes nothing after so many seconds.
    seconds: float
    #: The ids that were revoked, as far as the worker knows.
    revoked: frozenset[str]
    #: It ends when the process has more memory; 0: no limit.
    max_memory_kb: int = 0
    given: Given | None = None
    #: Whether the main process wants the message of each task that begins.
    tells_messages: bool = False
    #: Soft and hard time limits by the names of tasks, in seconds; 0: none.
    limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)


class Left(NamedTuple):
    """A message that a shift has taken, and that the main process has to deal with."""

    tag: str
    queue: str
    message: bytes
    #: What Celery's tracer has returned, for a task that has run.
    outcome: Any = None


@dataclass
class Report:
    """What a shift has done."""

    #: How many tasks have begun, by name.
    begun: dict[str, int] = field(default_factory=dict)
    #: How many failed.
    failed: int = 0
    #: How many deliveries were not run after all.
    not_begun: int = 0
    #: It ended because nothing waits.
    found_nothing: bool = False
    left: Left | None = None
    #: The tag under which a message may have been filed, and its task claimed, as the server has
    #: not answered.
    unsure: str = ""

    @property
    def total(self) -> int:
        """How many tasks have begun."""
        return sum(self.begun.values())

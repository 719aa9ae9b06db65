"""What the observer notes: publications and runs of bodies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.ledger.driver.schedule import Process


@dataclass
class Call:
    """One publication, known by its nonce, which is an argument of the task."""

    nonce: str
    task_id: str
    name: str
    place: str
    #: What its body is to do.
    plan: str
    #: The publication of the task that became a canvas with this one in it.
    host: Call | None = None
    began_ms: float | None = None
    answered_ms: float | None = None
    is_accepted: bool = False
    #: What it was answered with: itself, or the task that has its object.
    answered_with: str = ""
    #: The id may have been alive already: then nothing has to come of this call.
    may_be_second: bool = False
    #: The id was alive all the time: then nothing may come of this call.
    is_second: bool = True
    #: Somebody may have called it off, discarded it or lost it.
    is_excused: bool = False
    #: The server has lost what it knew since.
    is_lost: bool = False
    #: What `ServerClock` said when it was begun.
    n_runs: int = 0
    forward_ms: float = 0.0
    #: It became a dead letter, of which others may take the place since.
    is_buried: bool = False
    #: Its task was seen to have ended.
    closed_ms: float | None = None
    #: When an operator stopped its task, who was told that it is.
    stopped_ms: float | None = None
    replays: int = 0
    bodies: list[Body] = field(default_factory=list)
    members: list[Call] = field(default_factory=list)

    @property
    def is_under_way(self) -> bool:
        return self.began_ms is not None and self.answered_ms is None

    @property
    def ids(self) -> set[str]:
        """The ids under which it ran; of a canvas's member only its bodies tell."""
        return {self.task_id} if self.host is None else {body.task_id for body in self.bodies}

    @property
    def has_ended(self) -> bool:
        """Whether a body of it came to its end, or what it became.

        A process cannot become tasks of which it has no code: that fails.
        """
        return any(body.how in ("done", "Broken", "NotRegistered") for body in self.bodies) or any(
            member.has_ended for member in self.members
        )

    def __str__(self) -> str:
        return f"{self.name} {self.task_id} {self.nonce} ({self.plan})"


@dataclass(eq=False)
class Body:
    """One run of a body."""

    call: Call
    task: str
    task_id: str
    place: str
    process: Process
    worker: str
    attempt: int
    began_ms: float
    #: The queue that its message was sent to.
    queue: str = ""
    ended_ms: float | None = None
    how: str = ""
    #: It killed its own process.
    is_suicide: bool = False

    @property
    def node(self) -> str:
        """The name of the worker in which it runs, as Celery has it."""
        return f"celery@{(self.process.parent or self.process).name}"

    @property
    def is_live(self) -> bool:
        return self.ended_ms is None and self.process.is_alive

    def __str__(self) -> str:
        return f"{self.call.nonce} (attempt {self.attempt} of {self.worker})"

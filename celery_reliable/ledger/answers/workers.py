"""What the ledger answers of workers and passes alone."""

from __future__ import annotations

from typing import final

from celery_reliable.ledger.answers.base import Answer
from celery_reliable.model import Claim

__all__ = [
    "Acknowledged",
    "Alive",
    "Already",
    "Asked",
    "Audited",
    "Beat",
    "BeatOfDead",
    "Begun",
    "Busy",
    "Declared",
    "DeclaredDead",
    "Deregistered",
    "Forgotten",
    "Grace",
    "Grouped",
    "InForce",
    "Known",
    "Newer",
    "NotDue",
    "Noted",
    "Ordered",
    "Overtaken",
    "Refused",
    "Registered",
    "Renewed",
    "Resumed",
    "SetBack",
    "Suspected",
    "Told",
]


@final
class Acknowledged(Answer):
    """The worker has stopped what was taken from it."""


@final
class Alive(Answer):
    """The worker has renewed its lease meanwhile, or its lease still runs."""


@final
class Already(Answer):
    """The worker is dead already."""


@final
class Asked(Answer):
    """The next pass will look at queued records whose message may be lost since then."""

    since_ms: int


@final
class Begun(Answer):
    """A pass has begun.  Times are in ms of the server's clock; None where there is none."""

    #: Until then no lease counts as lapsed.
    grace_ms: int
    #: Since when messages may have been lost, and the number of that request.
    ahead_ms: int | None
    ahead_count: int | None
    now_ms: int
    #: By how much the times of due records have to be set back.
    behind_ms: int | None
    #: When the clock last stepped forward, and by how much.
    stepped_ms: int | None
    stepped_by_ms: int | None
    #: Which workers the last pass has seen, as it said itself; empty when nobody knows.
    seen: str


@final
class Busy(Answer):
    """A pass is running."""


@final
class Declared(Answer):
    """The worker is dead from now on.  Passes look for messages that it may have popped."""


@final
class DeclaredDead(Answer):
    """The worker was declared dead before."""


@final
class Deregistered(Answer):
    """The worker is forgotten."""


@final
class Grace(Answer):
    """Nobody is declared dead until then, in ms of the server's clock."""

    until_ms: int


@final
class Known(Answer):
    """The queues are on the server that passes know."""


@final
class NotDue(Answer):
    """A pass has finished just now; the next is due after so long."""

    wait_ms: int
    now_ms: int


@final
class Overtaken(Answer):
    """The pass has expired, and another may have begun."""


@final
class Refused(Answer):
    """The worker still holds so many claims, or a message."""

    claims: int


@final
class Newer(Answer):
    """A later release writes in this namespace, in a format that this one does not know."""

    format: str


@final
class Registered(Answer):
    """The worker has its lease."""


@final
class SetBack(Answer):
    """The times of so many records were set back; there may be more."""

    count: int


@final
class Suspected(Answer):
    """The worker's connection has not been gone for long enough."""


class Beat(Answer):
    """The answer to a heartbeat."""

    #: Names the orders that are there now; 0: nobody has given any yet.
    version: int
    #: The server's time.
    now_ms: int
    #: Claims that the worker is to stop: id, attempt, token, and "stop" or "kill".
    stops: tuple[tuple[str, int, str, str], ...]
    #: Claims taken from the worker that it has not acknowledged: id, attempt and token.
    taken: tuple[tuple[str, int, str], ...]

    def claims(self, worker: str) -> list[Claim]:
        """Return what was taken from *worker*, who asked."""
        return [Claim(task_id, attempt, worker, token) for task_id, attempt, token in self.taken]

    def to_stop(self, worker: str) -> list[tuple[Claim, str]]:
        """Return what *worker*, who asked, is to stop, each with "stop" or "kill"."""
        return [(Claim(i, attempt, worker, token), how) for i, attempt, token, how in self.stops]


@final
class Renewed(Beat):
    """The lease is renewed."""


@final
class BeatOfDead(Beat):
    """The worker was declared dead."""

    word = "declared_dead"


@final
class Forgotten(Beat):
    """The worker was dead, and the sweeper has finished with what it held."""


@final
class Audited(Answer):
    """What an operator does is noted."""


@final
class Noted(Answer):
    """What happened is noted, or at least counted."""


@final
class Grouped(Answer):
    """The index of groups says of so many letters what it did not say before."""

    added: int
    removed: int


@final
class Ordered(Answer):
    """The order is given."""


@final
class InForce(Answer):
    """The order still holds, and its time is not over."""


@final
class Resumed(Answer):
    """The order is over, and so many of the tasks that it had parked are let go."""

    count: int
    #: There may be others, which are let go by the next call.
    is_more: bool


@final
class Told(Answer):
    """The worker, the *owner*, hears with its next beat what it is to stop."""

    owner: str

"""Which workers may run a task: the header that says so, and how it is compared with their names.

Pure: nothing here knows which workers live.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from celery_reliable.leases import matches

__all__ = ["NAMED", "NamedWorkers", "is_named"]

#: The header of a message that only some workers may run, or that some should run.
NAMED = "reliable_workers"


def is_named(message: str) -> bool:
    """Whether the text of a stored message can have the header; a cheap look before it is read."""
    return f'"{NAMED}"' in message


@dataclass(frozen=True)
class NamedWorkers:
    """Which workers may run a task, and which should.

    Attributes:
        only: patterns of which a worker's name must match one; none: any worker may run it.
        prefer: patterns of those that get it first, the first pattern's before the second's.
        home: exchange and routing key that it would have had without this.
        run: of which the task is a member; each of them runs on another worker.
        pin: the worker that the member has; no other may run it.
    """

    only: tuple[str, ...] = ()
    prefer: tuple[str, ...] = ()
    home: tuple[str, str] = ("", "")
    run: str = ""
    pin: str = ""

    @classmethod
    def of(cls, headers: Mapping[str, Any] | None) -> NamedWorkers | None:
        """Read it from a message's headers; None of a message that any worker may run.

        What somebody else wrote there, and is not to be understood, allows no worker: whoever wrote
        it meant to forbid some.
        """
        told = (headers or {}).get(NAMED)
        if told is None:
            return None
        if not isinstance(told, Mapping):
            return cls(only=("",))
        home = _texts(told.get("home"))
        return cls(
            only=_texts(told.get("only")),
            prefer=_texts(told.get("prefer")),
            home=(home[0], home[1]) if len(home) == 2 else ("", ""),
            run=str(told.get("run") or ""),
            pin=str(told.get("pin") or ""),
        )

    @classmethod
    def from_text(cls, text: str) -> NamedWorkers:
        """Read what `to_text` wrote; of anything else, what allows no worker."""
        with suppress(ValueError):
            return cls.of({NAMED: json.loads(text)}) or cls(only=("",))
        return cls(only=("",))

    def as_header(self) -> dict[str, Any]:
        """Return what `of` reads: what applies, as plain JSON values."""
        found: dict[str, Any] = {
            "only": [*self.only],
            "prefer": [*self.prefer],
            "home": [*self.home] if any(self.home) else [],
            "run": self.run,
            "pin": self.pin,
        }
        return {name: value for name, value in found.items() if value} or {"only": []}

    def to_text(self) -> str:
        """Return the same as text, the same for the same workers."""
        return json.dumps(self.as_header(), sort_keys=True)

    @property
    def is_any_named(self) -> bool:
        """Whether it names a worker at all."""
        return bool(self.only or self.prefer or self.run)

    def may_run(self, nodename: str) -> bool:
        """Whether a worker of this name may begin what its message says this of."""
        if self.run:
            return self.pin == nodename
        return self.means(nodename)

    def means(self, nodename: str) -> bool:
        """Whether it may be sent to a worker of this name."""
        return not self.only or any(matches(pattern, nodename) for pattern in self.only)

    def rank(self, nodename: str) -> int:
        """Return how much a worker is preferred; 0: the most, and `len(prefer)`: not at all."""
        ranks = (rank for rank, one in enumerate(self.prefer) if matches(one, nodename))
        return next(ranks, len(self.prefer))


def _texts(told: object) -> tuple[str, ...]:
    if isinstance(told, str) or not isinstance(told, Iterable):
        return ()
    return tuple(str(one) for one in told)

"""A point at which a command is cut, and how it is written."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["EFFECTS", "ROLES", "TIMES", "Point"]

ROLES = ("publisher", "child", "main", "sweeper")
#: Before: the server never sees it. After: the server has executed it, and its reply is lost.
TIMES = ("before", "after")
#: The connection alone, or the process that sent it.
EFFECTS = ("reset", "kill")


@dataclass(frozen=True, order=True)
class Point:
    """The *number*-th command of this name that a role sends in a scenario, or has under way when
    it begins: a blocking pop.
    """

    scenario: str
    role: str
    command: str
    number: int
    time: str
    effect: str

    def __str__(self) -> str:
        return f"{self.scenario}/{self.role}/{self.command}#{self.number}/{self.time}/{self.effect}"

    @classmethod
    def parse(cls, text: str) -> Point:
        """Read what `str` wrote.  Raises ValueError."""
        scenario, role, command, time, effect = text.split("/")
        name, _, number = command.rpartition("#")
        if role not in ROLES or time not in TIMES or effect not in EFFECTS or not name:
            raise ValueError(f"not a point: {text}")
        return cls(scenario, role, name, int(number), time, effect)

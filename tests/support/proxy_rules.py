"""Which commands a proxy watches or loses, and what became of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from tests.support.resp import Command
from tests.support.waiting import wait_for

__all__ = ["Action", "Match", "Rule"]


class Action(Enum):
    """What a rule does with a command that is its turn."""

    WATCH = "watched"
    DROP_REQUEST = "request dropped"
    DROP_REPLY = "reply dropped"
    STALL = "stalled"


@dataclass(eq=False)
class Rule:
    """Which commands it is about, from the how-manieth on, and how often it acts.

    `matched` counts the commands that fitted, `acted` those it acted on. Both grow in the proxy's
    thread; `wait` is the way to wait for them.
    """

    action: Action
    fits: Callable[[Command], bool]
    nth: int
    times: int | None
    what: str
    matched: int = 0
    acted: int = 0

    def wait(self, acted: int = 1, timeout_seconds: float = 10.0) -> None:
        """Wait until it acted so many times."""
        wait_for(lambda: self.acted >= acted, timeout_seconds, f"the proxy's rule: {self.what}")

    def take(self, command: Command) -> Match | None:
        """Count a command if it fits, and say whether the rule acts on it."""
        if not self.fits(command):
            return None
        self.matched += 1
        acts = self.matched >= self.nth and (self.times is None or self.acted < self.times)
        self.acted += acts
        return Match(self, acts)


@dataclass(frozen=True)
class Match:
    """A command that fitted a rule, and whether the rule acted on it."""

    rule: Rule
    acts: bool

    def does(self, action: Action) -> bool:
        return self.acts and self.rule.action is action

    def give_back(self) -> None:
        """Uncount a command that the server did not execute after all."""
        self.rule.matched -= 1
        self.rule.acted -= self.acts

"""What an entry of the table of findings is, and how facts are looked at."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from celery_reliable.exceptions import refuse
from celery_reliable.log import logger

__all__ = [
    "NO_START",
    "Entry",
    "Finding",
    "Seen",
    "counted",
    "listed",
    "log_finding",
    "look",
    "raise_for",
    "worst_first",
]

F = TypeVar("F")

#: What a predicate returns: nothing, True, or the values of the texts, once for each finding.  A
#: value ``severity`` takes the place of the entry's.
Seen = bool | None | Mapping[str, Any] | Iterable[Mapping[str, Any]]
NO_START = "No worker starts, and publishing a task raises."
_LEVELS = ("error", "warning", "info")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, or may be.

    Attributes:
        code: such as "E005"; it stays.
        name: the same in words.
        severity: with an "error" the package must not start, or does not work; a "warning" will
            hurt; an "info" is worth knowing.
        message: what is the case, with names and values.
        hint: what to change.
        ignored: what happens if nobody does.
    """

    code: str
    name: str
    severity: Literal["error", "warning", "info"]
    message: str
    hint: str
    ignored: str


@dataclass(frozen=True)
class Entry(Finding, Generic[F]):
    """One finding, before anybody has looked.

    Its ``message`` and its ``hint`` have places for the values that the predicate returns.  Its
    ``severity``, which is the letter of its ``code``, is the worst that the finding can have: the
    predicate may say another.

    Attributes:
        predicate: looks at facts; None: whoever tries it and fails says so by `found`.
    """

    predicate: Callable[[F], Seen] | None = None

    def found(self, **values: Any) -> Finding:
        """Return the finding with these values."""
        severity = values.pop("severity", self.severity)
        message, hint = self.message.format(**values), self.hint.format(**values)
        return Finding(self.code, self.name, severity, message, hint, self.ignored)


def look(entries: Iterable[Entry[F]], facts: F) -> list[Finding]:
    """Return what *entries* find in facts."""
    found = []
    for entry in entries:
        seen = entry.predicate(facts) if entry.predicate is not None else None
        if seen is True:
            seen = {}
        if isinstance(seen, Mapping):
            seen = [seen]
        found += [entry.found(**values) for values in seen or ()]
    return found


def raise_for(findings: Iterable[Finding]) -> list[Finding]:
    """Raise for the errors among `findings`, all in one; return the warnings.

    Raises:
        ConfigurationError: with one paragraph per error.
    """
    found = list(findings)
    refuse(f"{item.message} {item.hint}" for item in found if item.severity == "error")
    return found


def worst_first(found: Iterable[Finding]) -> list[Finding]:
    """Return findings without repetitions, errors first."""
    return sorted(dict.fromkeys(found), key=lambda one: _LEVELS.index(one.severity))


def listed(names: Sequence[str], at_most: int = 5) -> str:
    """Return the first names, and how many more there are."""
    more = len(names) - at_most
    return ", ".join(names[:at_most]) + (f" and {more} more" if more > 0 else "")


def counted(number: int, noun: str) -> str:
    """Return "1 task", "2 tasks", "2 entries"."""
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun[:-1]}ies" if noun.endswith("y") else f"{number} {noun}s"


def log_finding(finding: Finding) -> None:
    """Write a finding into the log."""
    logger.log(
        logging.INFO if finding.severity == "info" else logging.WARNING,
        "finding code=%s check=%s severity=%s message=%s hint=%s",
        finding.code,
        finding.name,
        finding.severity,
        finding.message,
        finding.hint,
        stacklevel=2,
    )

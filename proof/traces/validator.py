"""Replays a trace on the model, and names the first call that the model does not allow."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from proof.model import ANY, REST, RULES, Lock, Outcome, Task, Unknown, Worker, answers
from proof.traces.entries import BY_HAND, Entry
from proof.traces.shadow import Shadow

__all__ = ["Rejected", "Result", "Validator", "checked"]

#: What a call leaves is compared for these kinds of names.  Of the others, replies tell enough.
COMPARED = (
    "task", "worker", "claims", "taken", "stops", "lock", "waiting", "later", "waker", "meta",
    "clock",
)  # fmt: skip
#: What is in errors by which a server refuses a command: it is full, a replica, or the user has no
#: right to it.  Redis before 7 and Valkey have no word of their own for the last within a script.
REFUSALS = (
    "OOM ", "READONLY", "MISCONF", "NOPERM", "NOREPLICAS", "MASTERDOWN", "WRONGTYPE",
    "The user executing the script can't ", "ACL failure in script",
)  # fmt: skip
#: So many calls of a task are told when one of them is not allowed.
TOLD = 12


class Rejected(Exception):
    """A call that the model does not allow.  Its text says which and why, and what was before."""

    def __init__(self, entry: Entry, number: int, why: str, history: Sequence[Entry]) -> None:
        self.entry = entry
        self.number = number
        self.why = why
        told = "\n".join(f"  {one.text()}" for one in history)
        super().__init__(
            f"call {number} is not allowed: {entry.text()}\n{why}\nbefore it, of the same tasks:\n"
            f"{told or '  nothing'}"
        )


class Result(NamedTuple):
    """How many calls of which scripts were accepted, and of scripts without a rule."""

    accepted: Counter[str]
    uncovered: Counter[str]


class Validator:
    """A state of the model that follows a trace, call by call.

    *from_empty*: the trace begins with an empty namespace.  Else what a task was before is learned
    from the first call that tells it.
    """

    def __init__(self, *, from_empty: bool = True) -> None:
        self.state: dict[str, Any] = {}
        self.shadow = Shadow()
        self.result = Result(Counter(), Counter())
        self._from_empty = from_empty
        self._learned: set[str] = set()
        self._number = 0
        self._before: dict[str, deque[Entry]] = {}

    def take(self, entry: Entry) -> None:
        """Follow one call.  Raises Rejected if the model does not allow it."""
        self._number += 1
        call = entry.call
        if call.name == BY_HAND:
            self._adopt(self.shadow.apply(entry.writes, call.now_us // 1000))
            return
        if call.name not in RULES:
            self.result.uncovered[call.name] += 1
            return
        if entry.reply is not None and entry.reply[0] == "error":
            if not any(word in entry.reply[1] for word in REFUSALS):
                self._reject(entry, "a script raised")
            # The server refused a command in the midst of it.
            self._adopt(self.shadow.apply(entry.writes, call.now_us // 1000) | entry.ids)
            return
        try:
            outcomes = answers(self.state, call, known=self._is_known)
        except Unknown as unknown:
            self._adopt({unknown.name} | self.shadow.apply(entry.writes, call.now_us // 1000))
            return
        fitting = [one for one in outcomes if _fits(one.reply, entry.reply)]
        if not fitting:
            self._reject(entry, f"the model answers {_told(outcomes)}")
        touched = self.shadow.apply(entry.writes, call.now_us // 1000)
        wrong = ""
        for outcome in fitting:
            wrong = self._difference(outcome, touched)
            if not wrong:
                self._follow(outcome, entry)
                return
        self._reject(entry, wrong)

    def _follow(self, outcome: Outcome, entry: Entry) -> None:
        for name, value in outcome.changes.items():
            if value is None:
                self.state.pop(name, None)
                continue
            found = self.shadow.told(name)
            if isinstance(value, Task) and isinstance(found, Task):
                # It may be rounded otherwise, and a later call names it as the server has it.
                value = value._replace(due=found.due)
            self.state[name] = value
        self.result.accepted[entry.call.name] += 1
        for name in entry.ids:
            self._before.setdefault(name, deque(maxlen=TOLD)).append(entry)

    def _difference(self, outcome: Outcome, touched: set[str]) -> str:
        """Return what the call left otherwise than the model does, or ""."""
        for name in sorted(touched | set(outcome.changes)):
            expected = outcome.changes[name] if name in outcome.changes else self.state.get(name)
            if wrong := _unlike(name, expected, self.shadow.told(name)):
                return wrong
        return ""

    def _adopt(self, names: set[str]) -> None:
        """Take over what the server holds under these names."""
        for name in names:
            value = self.shadow.told(name)
            self._learned.add(name)
            if value is None:
                self.state.pop(name, None)
            else:
                self.state[name] = value

    def _is_known(self, name: str) -> bool:
        return self._from_empty or name in self._learned or name in self.state

    def _reject(self, entry: Entry, why: str) -> None:
        seen = {id(one): one for name in entry.ids for one in self._before.get(name, ())}
        history = sorted(seen.values(), key=lambda one: one.call.now_us)[-TOLD:]
        raise Rejected(entry, self._number, why, history)


def checked(trace: Iterable[Entry], *, from_empty: bool = True) -> Result:
    """Replay a trace and return what was accepted.  Raises Rejected."""
    validator = Validator(from_empty=from_empty)
    for entry in trace:
        validator.take(entry)
    return validator.result


def _text(value: Any) -> str:
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else str(value)
    return str(value)


def _fits(expected: Sequence[Any], found: Sequence[str] | None) -> bool:
    """Tell whether a reply is one that is expected."""
    if found is None:
        return True
    if len(expected) == 7 and isinstance(expected[5], frozenset):
        return _fits_beat(expected, found)
    if expected[-1] is REST:
        expected, found = expected[:-1], found[: len(expected) - 1]
    if len(expected) != len(found):
        return False
    for one, other in zip(expected, found, strict=True):
        if one is ANY or _text(one) == other:
            continue
        try:
            if float(one) == float(other):
                continue
        except (TypeError, ValueError):
            pass
        return False
    return True


def _fits_beat(expected: Sequence[Any], found: Sequence[str]) -> bool:
    said, _, _, n_stops, n_claims, stops, taken = expected
    pairs = list(zip(found[5::2], found[6::2], strict=True))
    return (
        (said, str(n_stops), str(n_claims)) == (found[0], found[3], found[4])
        and frozenset(pairs[:n_stops]) == stops
        and frozenset(pairs[n_stops:]) == taken
    )


def _told(outcomes: Sequence[Outcome]) -> str:
    said = []
    for one in outcomes:
        words = ("*" if word is ANY else _text(word)[:60] for word in one.reply)
        said.append(" ".join(words))
    return " or ".join(said)


def _unlike(name: str, expected: Any, found: Any) -> str:
    """Return how two values of one name differ, or ""."""
    if isinstance(expected, (Task, Worker)) and isinstance(found, (Task, Worker)):
        for field in expected._fields:
            ours, theirs = getattr(expected, field), getattr(found, field)
            # A script that adds what PTTL has answered comes to one more or less.
            is_rounded = field == "due" and bool(ours and theirs) and abs(ours - theirs) <= 1
            if ours != theirs and not is_rounded:
                return f"{name}: the model has {field} {ours!r}, the server {theirs!r}"
        return ""
    if name.partition(":")[0] not in COMPARED:
        return ""
    if isinstance(expected, Lock) and isinstance(found, Lock):
        expected, found = expected.value, found.value
    if expected != found:
        return f"{name}: the model has {expected!r}, the server {found!r}"
    return ""

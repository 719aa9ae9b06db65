"""Follows a server that has worked for long: what is not known yet is learned, and not judged."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from proof.model import RULES, Call, Lock, Task, Unknown, Worker, answers, short
from proof.traces.entries import Entry
from proof.traces.shadow import Shadow
from proof.traces.validator import Rejected

__all__ = ["LiveValidator"]

#: Nobody hears by which time a script decided: it is that of its call, or a little later, in ms.
BLUR_MS = 100
#: What these do depends on the exact time, or on all that there is.
NOT_JUDGED = frozenset({"begin_pass", "end_pass", "due", "wake", "resume", "wait"})
#: Arguments that may hold what users wrote, by script.
SECRET = {
    "record": (6,), "claim": (10,), "bury": (4, 6, 7),
    "resend": (5,), "settle": (4,), "store": (3,), "lose": (12,), "note": (2,),
    "audit": (2,), "heartbeat": (5,), "register": (4,), "order": (8,), "group": (),
    "end_pass": (2,),
}  # fmt: skip
_SECRET_FIELDS = ("message", "letter", "traceback", "history", "cause", "doing", "facts")
#: These are times, or follow from them.
_TIMES = ("due", "lease_until", "missing_ms", "published_ms", "buried_ms")
#: What is not known before it was seen.
_LEARNED = (
    "worker:", "claims:", "taken:", "stops:", "task:", "lock:", "sent:", "waiting:object ",
)  # fmt: skip
_READS = frozenset(
    {
        "GET", "HGET", "HMGET", "HGETALL", "HLEN", "ZSCORE", "ZRANGE", "TTL", "PTTL", "TIME",
        "ZRANGEBYSCORE", "ZLEXCOUNT", "EXISTS", "INFO", "XREVRANGE", "SELECT", "PUBLISH",
    }
)  # fmt: skip


class LiveValidator:
    """Follows calls of which nobody heard the reply, by what they wrote.

    A task is judged from its publication on, if that was seen.  Memory grows with the tasks that
    live, and no further than *most* of them: then nothing new is learned.
    """

    def __init__(
        self, hashes: Mapping[str, Mapping[str, str]], leases: Mapping[str, float], *, most: int
    ) -> None:
        self.shadow = Shadow()
        self.judged: Counter[str] = Counter()
        self.unjudged: Counter[str] = Counter()
        self.uncovered: Counter[str] = Counter()
        self._most = most
        self._known: set[str] = set()
        self.state: dict[str, Any] = {}
        for key, fields in hashes.items():
            self.shadow.hashes[short(key)] = dict(fields)
        self.shadow.sorted["workers"] = dict(leases)
        self._adopt({short(key) for key in hashes})
        if orders := self.shadow.hashes.get("orders"):
            self.state["orders"] = tuple(sorted(orders.items()))

    def take(
        self,
        at_us: int,
        calls: Sequence[tuple[str, tuple[str, ...], tuple[str, ...]]],
        writes: Sequence[tuple[str, ...]],
    ) -> None:
        """Follow one step.  Raises Rejected if the model does not allow it."""
        name = calls[0][0]
        run_id = str(dict(self.state.get("meta", ())).get("run_id", ""))
        made = [
            Call(called, tuple(map(short, keys)), _hidden(called, args), at_us, run_id)
            for called, keys, args in calls
        ]
        self._known |= _empty_lines(writes)
        found = [_without_secrets(one) for one in writes if one and one[0].upper() not in _READS]
        entry = Entry(made[0], None, tuple(found))
        if any(call.name not in RULES for call in made):
            self.uncovered[name] += 1
            self._adopt(self.shadow.apply(found, at_us // 1000))
            return
        try:
            is_judged = NOT_JUDGED.isdisjoint(call.name for call in made)
            outcomes = self._outcomes(made) if is_judged else []
        except Unknown:
            outcomes = []
        touched = self.shadow.apply(found, at_us // 1000)
        if outcomes:
            wrong = [self._difference(one, touched) for one in outcomes]
            if "" not in wrong:
                raise Rejected(entry, self.judged.total() + self.unjudged.total(), wrong[0], ())
            self._follow(outcomes[wrong.index("")], touched)
            self.judged[name] += 1
        else:
            self.unjudged[name] += 1
            self._known |= _fresh(made[0], found)
            self._adopt(touched)

    def _outcomes(self, calls: Sequence[Call]) -> list[dict[str, Any]]:
        """Return what the calls may change, whichever time within the blur they decided by."""
        found: list[dict[str, Any]] = []
        for late_us in (0, 1000, BLUR_MS * 1000):
            changes: list[dict[str, Any]] = [{}]
            for call in calls:
                later = call._replace(now_us=call.now_us + late_us)
                changes = [
                    before | outcome.changes
                    for before in changes
                    for outcome in answers(_over(self.state, before), later, known=self._knows)
                ]
            found += [one for one in changes if one not in found]
        return found

    def _knows(self, name: str) -> bool:
        if name.startswith(_LEARNED):
            return name in self._known
        # Who stands in the line of an order matters to those only that are not judged.
        return name in ("meta", "clock", "orders", "later") or name.startswith("waiting:order ")

    def _difference(self, changes: Mapping[str, Any], touched: set[str]) -> str:
        for name in sorted(touched | set(changes)):
            expected = changes[name] if name in changes else self.state.get(name)
            found = self.shadow.told(name)
            if name.startswith(("task:", "worker:")):
                if wrong := _unlike(expected, found):
                    return f"{name}: {wrong}"
            elif (name.startswith(("claims:", "taken:", "stops:")) and expected != found) or (
                name.startswith("lock:") and _value(expected) != _value(found)
            ):
                return f"{name}: the model has {expected!r}, the server {found!r}"
        return ""

    def _follow(self, changes: Mapping[str, Any], touched: set[str]) -> None:
        for name, value in changes.items():
            if value is None:
                self.state.pop(name, None)
            else:
                self.state[name] = value
            self._known.add(name)
        for name in touched:
            if (value := self.shadow.told(name)) is not None and name in self.state:
                # By the server's own times from now on.
                self.state[name] = value
        self._forget(changes)

    def _forget(self, names: Iterable[str]) -> None:
        """Keep nothing of what has ended: it would be published anew as another task."""
        for name in names:
            if name.startswith("task:") and name not in self.state:
                self._known.discard(name)
                self.shadow.hashes.pop(name, None)

    def _adopt(self, names: set[str]) -> None:
        for name in names:
            value = self.shadow.told(name)
            if name.startswith(("task:", "waiting:")) and name not in self._known:
                continue
            if len(self.state) >= self._most and name not in self.state:
                continue
            self._known.add(name)
            if value is None:
                self.state.pop(name, None)
            else:
                self.state[name] = value


def _fresh(call: Call, writes: Sequence[Sequence[str]]) -> set[str]:
    """Return what is known from now on: a task whose record is new, and what a new worker holds."""
    if call.name == "register":
        return {f"{kind}:{call.args[0]}" for kind in ("claims", "taken", "stops")}
    task = call.keys[1]
    on_task = [one[0].upper() for one in writes if len(one) > 1 and short(one[1]) == task]
    # Who publishes an id that has a record removes fields of it.
    is_new = call.name == "record" and "HSET" in on_task and "HDEL" not in on_task
    return {task} if is_new else set()


def _empty_lines(commands: Sequence[Sequence[str]]) -> set[str]:
    """Return the lines in which nobody stood when they were looked at.  What a command answered is
    not told, but who stands there is looked at next.
    """
    found, seen = set(), set()
    for n, (name, *words) in enumerate(commands):
        line = short(words[0]) if words else ""
        if line.startswith("waiting:") and line not in seen:
            seen.add(line)
            behind = [short(word) for word in (*commands[n + 1 :], ("", ""))[0][:2]]
            is_taken = behind in (["ZADD", line], ["ZREM", line]) or behind[0] == "HMGET"
            if name.upper() in ("EXISTS", "ZRANGE") and not is_taken:
                found.add(line)
    return found


def _hidden(name: str, args: Sequence[str]) -> tuple[str, ...]:
    secret = SECRET.get(name, ())
    return tuple(
        _digest(arg) if (n in secret and arg) or len(arg) > 250 else arg
        for n, arg in enumerate(args, 1)
    )


def _without_secrets(write: Sequence[str]) -> tuple[str, ...]:
    if write[0].upper() != "HSET":
        return tuple(_digest(word) if len(word) > 250 else word for word in write)
    told = list(write)
    for at in range(2, len(told) - 1, 2):
        is_secret = told[at] in _SECRET_FIELDS and told[at + 1]
        if is_secret or (len(told[at + 1]) > 250 and told[at] != "claim"):
            told[at + 1] = _digest(told[at + 1])
    return tuple(told)


def _digest(text: str) -> str:
    data = text.encode("utf-8", "surrogateescape")
    return "sha1:" + hashlib.sha1(data, usedforsecurity=False).hexdigest()


def _over(state: Mapping[str, Any], changes: Mapping[str, Any]) -> Mapping[str, Any]:
    if not changes:
        return state
    found = {**state, **changes}
    return {name: value for name, value in found.items() if value is not None}


def _value(lock: Lock | None) -> str | None:
    return None if lock is None else lock.value


def _unlike(expected: Any, found: Any) -> str:
    if not isinstance(expected, (Task, Worker)) or not isinstance(found, (Task, Worker)):
        return "" if expected == found else f"the model has {expected!r}, the server {found!r}"
    # How long a suspect waits is at random.
    is_random = isinstance(expected, Task) and expected.waiting_for == "alone"
    for field in expected._fields:
        ours, theirs = getattr(expected, field), getattr(found, field)
        if field == "run_id" or ours == theirs:
            continue
        is_time = field in _TIMES and bool(ours) and bool(theirs)
        if is_time and (is_random or abs(float(ours) - float(theirs)) <= BLUR_MS):
            continue
        return f"the model has {field} {ours!r}, the server {theirs!r}"
    return ""

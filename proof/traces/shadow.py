"""What the server holds, as far as the writes of scripts tell, and what the model calls that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from proof.model import Lock, Task, Worker, short
from proof.model.objects import spend

__all__ = ["Shadow"]

#: Kinds of keys of which a state tells something.
KINDS = (
    "task", "claims", "taken", "stops", "lock", "waiting", "worker", "meta", "clock", "pass",
    "sent", "rate", "later", "waker",
)  # fmt: skip

#: What the model knows of a namespace as a whole: as text, and as a number.
_META_TEXTS = ("generation", "run_id", "passed_by", "format", "broker")
_META_NUMBERS = (
    "passed_ms", "grace_ms", "interrupted_ms", "trimmed", "trimmed_ms",
)  # fmt: skip


class Shadow:
    """The values of the ledger's keys, by the writes that were seen."""

    def __init__(self) -> None:
        self.hashes: dict[str, dict[str, str]] = {}
        self.sorted: dict[str, dict[str, float]] = {}
        self.strings: dict[str, Lock] = {}

    def apply(self, writes: Iterable[Sequence[str]], now_ms: int) -> set[str]:
        """Do what a script wrote; return the short names that it concerns."""
        touched: set[str] = set()
        for name, *words in writes:
            write = getattr(self, f"_{name.lower()}", None)
            if write is None or not words:
                continue
            key = short(words[0])
            write(key, words[1:], now_ms)
            if key in ("due", "dead"):
                touched |= {f"task:{one}" for one in words[1:]}
            elif key == "workers":
                touched |= {f"worker:{one}" for one in words[1:]}
            touched.add(key)
        return {one for one in touched if one.partition(":")[0] in KINDS}

    def told(self, name: str) -> Any:
        """Return what the model calls the value of this name; None: nothing is there."""
        kind, _, rest = name.partition(":")
        if kind == "task":
            return self._task(name, rest)
        if kind == "worker":
            return self._worker(name, rest)
        if kind == "clock":
            kept = self.hashes.get(name)
            return kept and (float(kept["offset_ms"]), float(kept["latest_ms"]))
        if kind == "meta":
            found = self.hashes.get(name, {})
            told: dict[str, Any] = {one: found[one] for one in _META_TEXTS if one in found}
            told |= {one: float(found[one]) for one in _META_NUMBERS if one in found}
            return tuple(sorted(told.items()))
        if kind in ("claims", "taken", "stops") or name == "waiting:workers":
            return tuple(sorted(self.hashes.get(name, {}).items())) or None
        if kind in ("waiting", "later"):
            line = [(score, one) for one, score in self.sorted.get(name, {}).items()]
            return tuple(sorted(line, key=lambda one: (one[0], one[1].encode()))) or None
        return self.strings.get(name)

    def _task(self, name: str, task_id: str) -> Task | None:
        found = self.hashes.get(name)
        if not found:
            return None

        def of(field: str) -> str:
            return found.get(field, "")

        def number(field: str) -> int | None:
            return int(float(found[field])) if found.get(field) else None

        claim, token, spent, *notes = (of("claim") or "  \n\n").split("\n")
        owner, is_running = claim.split(" ", 2)[2], of("state") == "running"
        noted = dict(note.split(" ", 1) for note in notes)
        is_stopping = "stopping" in noted
        has_heir = is_running or of("waiting_for") == "canvas"
        deaths, _, suspect = of("deaths").partition(" ")
        places, look_ms, own = (*of("room").split(" "), "", "", "")[:3]
        is_unsent, is_sealed = of("resends") == "unsent", of("owed") == "sealed"
        return Task(
            state=of("state"), epoch=of("epoch"), message=of("message"), name=of("name"),
            published_as=of("published_as"),
            attempt=number("attempt"), token=token if is_running else "",
            owner=owner if is_running else "",
            losses=number("losses") or 0, max_losses=number("max_losses"),
            due=self.sorted.get("due", {}).get(task_id),
            spent=spend(spent, "" if is_running else token),
            stopping=f"{of('attempt')} {token}" if is_stopping else "",
            stopping_on=owner if is_stopping else "",
            revoked=bool(of("revoked")),
            has_history=bool(of("history")),
            buried_ms=of("since_ms") if of("state") == "dead" else "",
            sealed=is_sealed, read_by="" if is_sealed else of("owed"),
            heir=noted.get("heir", "") if has_heir else "",
            concluding="1" if is_running and "concluding" in noted else "", suspect=suspect,
            spared=int(deaths or 0),
            object=of("object"),
            waiting_for=of("waiting_for"), places=places, own_places=own == "own",
            look_ms=look_ms, list=of("list"),
            reserved=of("reserved"), unsent=is_unsent,
            resends=0 if is_unsent else number("resends") or 0, used="used" in found,
            published_ms=number("published_ms"),
        )  # fmt: skip

    def _worker(self, name: str, worker: str) -> Worker | None:
        found = self.hashes.get(name)
        if not found or not found.get("state"):
            return None
        return Worker(
            found["state"], renewals=int(found.get("renewals") or 0),
            connection=found.get("client_id", ""), run_id=found.get("run_id", ""),
            lease_ms=float(found.get("lease_ms") or 0),
            lease_until=self.sorted.get("workers", {}).get(worker, 0),
            missing_ms=float(found["missing_ms"]) if found.get("missing_ms") else None,
            missing_renewals=found.get("missing_renewals", ""),
            suspect=found.get("suspect", ""), suspect_claim=found.get("suspect_claim", ""),
            verdict=found.get("verdict", ""), charged=found.get("charged", ""),
        )  # fmt: skip

    # Writes, by the command.

    def _hset(self, key: str, words: Sequence[str], now_ms: int) -> None:
        self.hashes.setdefault(key, {}).update(zip(words[::2], words[1::2], strict=True))

    _hmset = _hset

    def _hsetnx(self, key: str, words: Sequence[str], now_ms: int) -> None:
        self.hashes.setdefault(key, {}).setdefault(words[0], words[1])

    def _hincrby(self, key: str, words: Sequence[str], now_ms: int) -> None:
        found = self.hashes.setdefault(key, {})
        found[words[0]] = str(int(float(found.get(words[0], 0))) + int(float(words[1])))

    def _hdel(self, key: str, words: Sequence[str], now_ms: int) -> None:
        found = self.hashes.get(key, {})
        for field in words:
            found.pop(field, None)

    def _del(self, key: str, words: Sequence[str], now_ms: int) -> None:
        for one in (key, *map(short, words)):
            for kind in (self.hashes, self.sorted, self.strings):
                kind.pop(one, None)

    _unlink = _del

    def _set(self, key: str, words: Sequence[str], now_ms: int) -> None:
        value, *options = words
        upper = [word.upper() for word in options]
        until = None
        for unit, factor in (("PX", 1), ("EX", 1000)):
            if unit in upper:
                until = now_ms + float(options[upper.index(unit) + 1]) * factor
        before = self.strings.get(key)
        is_there = before is not None and (before.until_ms is None or before.until_ms > now_ms)
        if "NX" not in upper or not is_there:
            self.strings[key] = Lock(value, until)

    def _zadd(self, key: str, words: Sequence[str], now_ms: int) -> None:
        flags = {word.upper() for word in words} & {"NX", "XX", "GT", "LT", "CH", "INCR"}
        pairs = [word for word in words if word.upper() not in flags]
        found = self.sorted.setdefault(key, {})
        for text, member in zip(pairs[::2], pairs[1::2], strict=True):
            score, before = float(text), found.get(member)
            if ("XX" in flags and before is None) or ("NX" in flags and before is not None):
                continue
            if before is not None and "LT" in flags:
                score = min(score, before)
            if before is not None and "GT" in flags:
                score = max(score, before)
            found[member] = score

    def _pexpire(self, key: str, words: Sequence[str], now_ms: int) -> None:
        if found := self.strings.get(key):
            self.strings[key] = found._replace(until_ms=now_ms + float(words[0]))

    def _expire(self, key: str, words: Sequence[str], now_ms: int) -> None:
        self._pexpire(key, [str(float(words[0]) * 1000)], now_ms)

    def _zincrby(self, key: str, words: Sequence[str], now_ms: int) -> None:
        found = self.sorted.setdefault(key, {})
        found[words[1]] = found.get(words[1], 0.0) + float(words[0])

    def _zrem(self, key: str, words: Sequence[str], now_ms: int) -> None:
        found = self.sorted.get(key, {})
        for member in words:
            found.pop(member, None)

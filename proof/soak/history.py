"""Reads the history of a server from its append-only file: whether each claim was its attempt's.

A claim is written, and removed, in one step with the record of its task and only of a worker that
passes look at.  So it can be left by nobody; if it is, this says after which commands.  No task of
the soak replaces itself by a canvas, whose claim stays a moment longer.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from pathlib import Path

from proof.leftovers import LEDGER

__all__ = ["History", "history_in", "step_end", "strays"]

Command = list[bytes]

_CLAIMS = f"{LEDGER}claims:".encode()
_RECORD = f"{LEDGER}task:".encode()
_WORKER = f"{LEDGER}worker:".encode()
_WORKERS = f"{LEDGER}workers".encode()
_LAST = 40
_MOST = 5


class History:
    """Follows the commands of the ledger's database, one transaction after the other."""

    def __init__(self) -> None:
        #: What is wrong, with the commands before it; not more than a few.
        self.found: list[str] = []
        #: How often a claim was written or removed.
        self.n_claims = 0
        self._hashes: dict[bytes, dict[bytes, bytes]] = defaultdict(dict)
        self._listed: set[bytes] = set()
        #: By the id of a task the workers that claim it.
        self._claimed: dict[bytes, set[bytes]] = defaultdict(set)
        self._touched: set[bytes] = set()
        self._last: deque[Command] = deque(maxlen=_LAST)

    def follow(self, text: bytes) -> None:
        """Follow all commands of a file; one that was broken off at its end is left out."""
        database, is_open = b"0", False
        for _, command in _commands(text):
            name = command[0].upper()
            if name == b"SELECT":
                database = command[1]
            elif name in (b"MULTI", b"EXEC"):
                is_open = name == b"MULTI"
            elif database == b"0":
                self._take(name, command[1:])
            if not is_open:
                self._look()

    def _take(self, name: bytes, args: Command) -> None:
        key, values = args[0], args[1:]
        if not key.startswith((_CLAIMS, _RECORD, _WORKER, _WORKERS)):
            return
        self._last.append([name, *args])
        if name in (b"DEL", b"UNLINK"):
            for one in args:
                self._change(one, {}, list(self._hashes[one]))
        elif key == _WORKERS:
            if name == b"ZADD":
                self._listed.add(values[-1])
            else:
                self._listed.difference_update(values)
            self._touched.update(values)
        elif name in (b"HSET", b"HMSET"):
            self._change(key, dict(zip(values[::2], values[1::2], strict=True)), [])
        elif name == b"HDEL":
            self._change(key, {}, values)
        elif name == b"HINCRBY":
            number = int(self._hashes[key].get(values[0], b"0")) + int(values[1])
            self._change(key, {values[0]: b"%d" % number}, [])

    def _change(self, key: bytes, fields: dict[bytes, bytes], gone: list[bytes]) -> None:
        row = self._hashes[key]
        row.update(fields)
        for field in gone:
            row.pop(field, None)
        if not row:
            del self._hashes[key]
        if key.startswith(_CLAIMS):
            worker = key.removeprefix(_CLAIMS)
            self.n_claims += 1
            self._touched.add(worker)
            for task in fields:
                self._claimed[task].add(worker)
            for task in gone:
                self._claimed[task].discard(worker)
        elif key.startswith(_WORKER):
            self._touched.add(key.removeprefix(_WORKER))
        elif key.startswith(_RECORD):
            self._touched |= self._claimed.get(key.removeprefix(_RECORD), set())

    def _look(self) -> None:
        """Look at what the step has touched."""
        for worker in self._touched:
            claims = self._hashes.get(_CLAIMS + worker, {})
            is_known = worker in self._listed and _WORKER + worker in self._hashes
            if claims and not is_known:
                self._tell(f"{worker.decode()}: no pass looks at it, and it has {claims}")
            for task, claim in claims.items():
                record = self._hashes.get(_RECORD + task, {})
                about, token = (*record.get(b"claim", b"").split(b"\n"), b"")[:2]
                pid, _, owner = (*about.split(b" ", 2), b"", b"", b"")[:3]
                meant = b" ".join((record.get(b"attempt", b""), pid, token))
                if record.get(b"state") != b"running" or owner != worker or meant != claim:
                    self._tell(f"{task.decode()}: claimed by {worker.decode()}, and is {record}")
        self._touched.clear()

    def _tell(self, what: str) -> None:
        if len(self.found) < _MOST:
            before = "\n".join(f"    {b' '.join(one)[:300]!r}" for one in self._last)
            self.found.append(f"{what}\n{before}")


def history_in(folder: Path) -> bytes:
    """The append-only file in the folder of a server that never writes it anew.

    Empty where it begins with a snapshot: then nobody knows what was before.
    """
    files = [folder / "appendonly.aof", *sorted(folder.glob("appendonlydir/*.incr.aof"))]
    text = b"".join(path.read_bytes() for path in files if path.is_file())
    return b"" if text.startswith(b"REDIS") else text


def strays(folder: Path) -> list[str]:
    """What was wrong with claims at any time in the history of the server in this folder."""
    history = History()
    history.follow(history_in(folder))
    return history.found


def step_end(text: bytes, size: int) -> int:
    """Where the first step ends that ends at *size* or behind it.  A step is a transaction, or a
    command alone.

    Redis appends, and syncs, all that a turn of its loop has executed, so that a file which is cut
    to what was synced ends there.  Of one that ends within a transaction Redis 6.2 and 7.0 keep the
    begin, and execute it, or drop what is written after it, as they load the file the next time.
    """
    is_open = False
    for at, command in _commands(text):
        name = command[0].upper()
        if name in (b"MULTI", b"EXEC"):
            is_open = name == b"MULTI"
        if at >= size and not is_open:
            return at
    return len(text)


def _commands(text: bytes) -> Iterator[tuple[int, Command]]:
    """Yield each command, and where it ends."""
    at = 0
    while (end := text.find(b"\r\n", at)) >= 0:
        count, at, found = int(text[at + 1 : end]), end + 2, []
        for _ in range(count):
            end = text.find(b"\r\n", at)
            if end < 0:
                return
            length = int(text[at + 1 : end])
            at = end + 2
            if len(text) < at + length + 2:
                return
            found.append(text[at : at + length])
            at += length + 2
        yield at, found

"""Calls as they were recorded, and a short way to tell of one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from proof.model import Call, short

__all__ = ["BY_HAND", "Entry", "entries"]

#: What somebody else than a script wrote.
BY_HAND = "by hand"


class Entry(NamedTuple):
    """One call: what was asked, answered and written.  *reply* is None where nobody heard it."""

    call: Call
    reply: tuple[str, ...] | None
    writes: tuple[tuple[str, ...], ...]

    @property
    def ids(self) -> set[str]:
        """The names of the records that it concerns."""
        keys = {key for key in self.call.keys if key.startswith("task:")}
        written = {short(write[1]) for write in self.writes if len(write) > 1}
        return keys | {one for one in written if one.startswith("task:")}

    def text(self) -> str:
        """Return the call in a line; long arguments are left out."""
        args = " ".join(arg if len(arg) <= 40 else "..." for arg in self.call.args)
        said = "?" if self.reply is None else " ".join(one[:60] for one in self.reply)
        line = f"{self.call.now_us / 1e6:.6f} {self.call.name}({args}) -> {said}"
        return line if line.isprintable() else line.encode("unicode_escape").decode()


def entries(stream: Iterable[tuple[Any, Mapping[bytes, bytes]]]) -> Iterator[Entry]:
    """Return the calls that a stream of a recorder holds, as XRANGE gives them."""
    for _, fields in stream:
        keys, args, reply, writes = json.loads(fields[b"call"].decode("utf-8", "surrogateescape"))
        yield Entry(
            Call(
                fields[b"script"].decode(), tuple(map(_key, keys)), tuple(args or ()),
                int(fields[b"at_us"]), fields[b"run_id"].decode(),
            ),
            tuple(reply or ()) if fields[b"script"].decode() != BY_HAND else None,
            tuple(tuple(write) for write in writes or ()),
        )  # fmt: skip


def _key(key: str) -> str:
    name = short(key)
    return "none" if name == "none" else name

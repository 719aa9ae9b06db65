"""As much of the Redis protocol as it takes to see where a command or a reply ends."""

from __future__ import annotations

import hashlib
from asyncio import StreamReader
from dataclasses import dataclass

SCRIPT_COMMANDS = frozenset({"EVALSHA", "EVAL", "EVALSHA_RO", "EVAL_RO", "FCALL", "FCALL_RO"})

# After one of these the server speaks unasked, and replies no longer pair off with commands.
SUBSCRIBING_COMMANDS = frozenset({"SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "MONITOR"})

_LINES = b"+-:_,#("
_BULKS = b"$=!"
_ARRAYS = b"*~>"


@dataclass(frozen=True)
class Command:
    """One command as a client sent it: its parts, and the bytes to pass on."""

    arguments: tuple[bytes, ...]
    raw: bytes

    @property
    def name(self) -> str:
        """The command in upper case; empty for an empty line."""
        return self.arguments[0].decode(errors="replace").upper() if self.arguments else ""

    @property
    def script(self) -> str | None:
        """The SHA-1 of the script it runs (for FCALL the function's name), or None."""
        if self.name not in SCRIPT_COMMANDS or len(self.arguments) < 2:
            return None
        if self.name.startswith("EVAL") and not self.name.startswith("EVALSHA"):
            return hashlib.sha1(self.arguments[1]).hexdigest()
        return self.arguments[1].decode(errors="replace").lower()

    def contains(self, text: str) -> bool:
        """Whether `text` is part of any argument."""
        wanted = text.encode()
        return any(wanted in argument for argument in self.arguments[1:])


async def read_command(reader: StreamReader) -> Command:
    """The next command. Raises IncompleteReadError at the end of the stream."""
    head = await _read_line(reader)
    if not head.startswith(b"*"):
        return Command(tuple(head.split()), head)
    raw = [head]
    arguments = []
    for _ in range(int(head[1:])):
        size = await _read_line(reader)
        value = await reader.readexactly(int(size[1:]) + 2)
        raw += [size, value]
        arguments.append(value[:-2])
    return Command(tuple(arguments), b"".join(raw))


async def read_reply(reader: StreamReader) -> bytes:
    """The bytes of the next whole reply, of RESP2 or RESP3, pushes included.

    Raises IncompleteReadError at the end of the stream.
    """
    raw: list[bytes] = []
    owed = 1
    while owed:
        head = await _read_line(reader)
        raw.append(head)
        kind, size = head[:1], head[1:]
        owed -= 1
        if kind in _LINES:
            continue
        if kind in _BULKS:
            if int(size) >= 0:
                raw.append(await reader.readexactly(int(size) + 2))
        elif kind in _ARRAYS:
            owed += max(int(size), 0)
        elif kind == b"%":
            owed += 2 * int(size)
        elif kind == b"|":
            # Attributes stand before a value and do not count as one.
            owed += 2 * int(size) + 1
        else:
            raise ValueError(f"not a Redis reply: {head!r}")
    return b"".join(raw)


async def _read_line(reader: StreamReader) -> bytes:
    return await reader.readuntil(b"\r\n")

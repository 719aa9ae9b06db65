"""Calls of ``take`` as MONITOR tells them: which calls of the ledger's scripts they were."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

__all__ = ["Called", "Takings"]

#: A script, and its keys and arguments.
Called = tuple[str, tuple[str, ...], tuple[str, ...]]
_Command = tuple[str, ...]
#: Of so many messages is known who filed them.  It is one for each process that works, or a few.
_MOST_FILED = 10_000


class _Headers(NamedTuple):
    """What a claim is told of its message."""

    id: str
    epoch: str = ""
    generation: str = ""
    task: str = ""


class Takings:
    """Takes calls of ``take`` apart.

    The script pops its message itself, so the arguments of its ``claim`` are in no command of a
    client.  They are in what the script writes: the message, as it is filed.
    """

    def __init__(self) -> None:
        #: Of what was filed and claimed, by the unacked hash and the tag.  A call that is repeated
        #: does not file it again.
        self._filed: dict[tuple[str, str], _Headers] = {}

    def begins(self, keys: Sequence[str], args: Sequence[str], commands: Sequence[_Command]) -> int:
        """Return which of a step's commands is the first of its ``take``; how many there are,
        if that did not begin, as the server refused something before.
        """
        first = ("HDEL", keys[0], "", *_done(args))
        return next((n for n, one in enumerate(commands) if one == first), len(commands))

    def taken_apart(
        self, keys: Sequence[str], args: Sequence[str], commands: Sequence[_Command]
    ) -> tuple[tuple[Called, ...], tuple[_Command, ...]]:
        """Return the call of ``claim`` that it made, and its commands; nothing where it claimed
        nothing.
        """
        unacked, ledger, tag = keys[0], keys[2], args[0]
        worker, pid, alone_ms = args[3], *args[5:7]
        records = f"{ledger}task:"
        for done in _done(args):
            self._filed.pop((unacked, done), None)
        at = next((n for n, one in enumerate(commands) if _key(one).startswith(records)), None)
        if at is None:
            return (), ()
        filed = next((one for one in commands[:at] if one[:3] == ("HSET", unacked, tag)), None)
        if filed is not None:
            self._keep((unacked, tag), _headers(filed[3]))
        # Of what was filed before this look, the id is known; so was its task published.
        asked_for = _Headers(_key(commands[at]).removeprefix(records))
        headers = self._filed.get((unacked, tag), asked_for)
        told = (headers.id, headers.epoch, headers.generation, worker, tag, pid, "0", headers.task)
        asked = (ledger, records + headers.id, *keys[3:7])
        return (("claim", asked, (*told, "", "", alone_ms)),), tuple(commands[at:])

    def _keep(self, where: tuple[str, str], headers: _Headers) -> None:
        self._filed[where] = headers
        if len(self._filed) > _MOST_FILED:
            del self._filed[next(iter(self._filed))]


def _done(args: Sequence[str]) -> Sequence[str]:
    """Return the tags of the messages that are done with."""
    return args[10 + int(args[9]) :]


def _key(command: _Command) -> str:
    return command[1] if len(command) > 1 else ""


def _headers(filed: str) -> _Headers:
    """Return the headers of a message as it is filed: ``take`` looks for them like this."""
    message = filed.partition("\n")[2]
    begin = message.find('"headers": {') + len('"headers": ')
    end = message.find('}, "properties": {', begin) + 1
    found: dict[str, Any] = json.loads(message[begin:end], strict=False)
    generation, _, rest = found["reliable"].partition(":")
    epoch = rest.rpartition(":")[0]
    return _Headers(found["id"], epoch, generation, found["task"])

"""Who publishes: each sender counts what it publishes, and does one after the other.

So the number of the last one that the ledger has of a sender tells of all before it that they were
recorded, whatever became of the server since.
"""

from __future__ import annotations

import os
import re
import secrets
from collections import deque

__all__ = ["Senders", "remembered_ms", "sender_of"]

_EPOCH = re.compile(r"[0-9]+-[0-9a-f]{8}-([0-9a-f]{16})-([0-9]{1,15})")

#: How long a sender is known after its last publication, for each that it made; so many are at the
#: most known for so long that processes which publish little leave little.
_REMEMBERED_MS = 3_600_000
_LONGEST_REMEMBERED_MS = 24 * _REMEMBERED_MS


class Senders:
    """The senders of one process, for any of its threads."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        #: Those that nobody uses just now, and how many publications of theirs were answered.
        self._idle: deque[tuple[str, int]] = deque()

    def new_epoch(self, attempt: int) -> str:
        """Return the name of one publication: the attempt that makes it (0: none), a nonce, its
        sender and its number among the sender's.

        The nonce tells apart what two copies of one process publish: of a machine that was cloned.
        """
        if self._pid != os.getpid():
            self._pid, self._idle = os.getpid(), deque()
        try:
            name, count = self._idle.pop()
        except IndexError:
            name, count = secrets.token_hex(8), 0
        return f"{attempt}-{secrets.token_hex(4)}-{name}-{count + 1}"

    def answered(self, epoch: str) -> None:
        """Let a sender go on: the ledger has answered its last publication.

        One that was not answered is never used again, as its last may still arrive.
        """
        name, number = sender_of(epoch)
        if name:
            self._idle.append((name, int(number)))


def sender_of(epoch: str) -> tuple[str, str]:
    """Return the sender that an epoch names, and its number there; both empty when it names
    none.
    """
    found = _EPOCH.fullmatch(epoch)
    return (found[1], found[2]) if found else ("", "")


def remembered_ms(number: str) -> int | str:
    """Return for how long a sender is to be known that has come to *number*; empty without one."""
    return min(int(number) * _REMEMBERED_MS, _LONGEST_REMEMBERED_MS) if number else ""

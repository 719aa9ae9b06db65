"""Senders: the names under which a process publishes.

A sender numbers its publications, and begins one only after the one before was answered.  So if the
ledger knows a sender's number 7, it has recorded numbers 1 to 7, whatever it has lost since.
"""

from __future__ import annotations

import os
import re
import secrets
from collections import deque

__all__ = ["Senders", "remembered_ms", "sender_of"]

_EPOCH = re.compile(r"[0-9]+-[0-9a-f]{8}-([0-9a-f]{16})-([0-9]{1,15})")

#: The ledger remembers a sender for one hour for each publication, for a day at the most.  So a
#: process that publishes little leaves its key for a short time only.
_REMEMBERED_MS = 3_600_000
_LONGEST_REMEMBERED_MS = 24 * _REMEMBERED_MS


class Senders:
    """The senders of one process, for any of its threads."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        #: Senders that no thread uses now, with the number of their last publication.
        self._idle: deque[tuple[str, int]] = deque()

    def new_epoch(self, attempt: int) -> str:
        """Return the name of a publication: attempt (0 for none), nonce, sender and number.

        The nonce differs between two copies of one process, which a cloned machine has.
        """
        if self._pid != os.getpid():
            self._pid, self._idle = os.getpid(), deque()
        try:
            name, count = self._idle.pop()
        except IndexError:
            name, count = secrets.token_hex(8), 0
        return f"{attempt}-{secrets.token_hex(4)}-{name}-{count + 1}"

    def answered(self, epoch: str) -> None:
        """Let a sender be used again, now that the ledger has answered its publication.

        A sender whose publication was not answered is never used again: the call may arrive late.
        """
        name, number = sender_of(epoch)
        if name:
            self._idle.append((name, int(number)))


def sender_of(epoch: str) -> tuple[str, str]:
    """Return the sender and the number in an epoch; both are empty if it has none."""
    found = _EPOCH.fullmatch(epoch)
    return (found[1], found[2]) if found else ("", "")


def remembered_ms(number: str) -> int | str:
    """Return for how many ms a sender with this *number* is remembered; empty without a number."""
    return min(int(number) * _REMEMBERED_MS, _LONGEST_REMEMBERED_MS) if number else ""

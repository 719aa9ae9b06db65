"""Waiting for a message that is filed as it leaves its queue.

BRPOP hands a message to a connection: a worker that dies before it has filed it leaves it nowhere.
BLMOVE waits as well, and moves the message into a list, the *inbox* of its queue.  What a client
has sent behind a command that waits, Redis runs as soon as that one is answered, whether the client
still lives or not.  So the call that takes the message out of the inbox and files it is sent along,
and the message is in its queue, in the inbox, or filed.

All workers that wait for a queue share its inbox.  What a server that died has left there is taken
by whoever waits next.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import redis

__all__ = [
    "INBOX_PREFIX",
    "NOTHING_ELSE",
    "N_FIRST",
    "N_REST",
    "Came",
    "Inbox",
    "bring_all_back",
    "bring_back",
]

#: What the key of an inbox begins with; then comes that of its list.
INBOX_PREFIX = "celery-reliable.inbox:"
#: So many replies are those of the wait and of the call that files; so many come behind them.
N_FIRST, N_REST = 2, 3
#: What comes behind where nothing was left in the inbox and nothing waits.
NOTHING_ELSE = (None, 0, 0)


class Came(NamedTuple):
    """What a wait has ended with."""

    #: What the script has answered that files the message; None if it has failed.
    filed: Any
    #: Whether the server does not know that script.
    is_unknown: bool
    #: How many more messages wait in the list.
    n_waiting: int
    #: How many of the other lists have messages.
    n_others: int
    #: The server's refusal of any part of it; None if it refused nothing.
    refusal: redis.ResponseError | None


@dataclass(frozen=True)
class Inbox:
    """Of one list.  Keys are whole."""

    list_key: str
    key: str
    #: The lists of the queue's other priorities, which nobody waits for here.
    others: Sequence[str] = ()

    def commands(self, call: Sequence[Any], timeout: float) -> list[tuple[Any, ...]]:
        """Return what is sent to wait for a message for so many seconds (0: for ever).

        *call*: the arguments of EVALSHA, of a script that takes from the inbox.
        """
        return [
            ("BLMOVE", self.list_key, self.key, "RIGHT", "LEFT", timeout),
            ("EVALSHA", *call),
            # What the script did not take goes back to where it came from.
            ("LMOVE", self.key, self.list_key, "RIGHT", "RIGHT"),
            ("LLEN", self.list_key),
            ("EXISTS", *(self.others or (self.key,))),
        ]

    def read(self, replies: Sequence[Any]) -> Came:
        """Return what the server has answered to all of them; error replies are exceptions."""
        waited, filed, returned, n_waiting, n_others = replies
        is_unknown = isinstance(filed, redis.exceptions.NoScriptError)
        replies = (waited, *([] if is_unknown else [filed]), returned, n_waiting, n_others)
        errors = [one for one in replies if _is_error(one)]
        return Came(
            None if _is_error(filed) else filed,
            is_unknown,
            0 if _is_error(n_waiting) else int(n_waiting),
            0 if _is_error(n_others) or not self.others else int(n_others),
            errors[0] if errors else None,
        )


def bring_back(client: redis.Redis, key: str | bytes, list_key: str | bytes) -> int:
    """Return to its list what is left in an inbox, and how many that was."""
    n = 0
    while client.lmove(key, list_key, "RIGHT", "RIGHT"):  # type: ignore[arg-type]
        n += 1
    return n


def bring_all_back(client: redis.Redis, prefix: str, lists: Iterable[str]) -> int:
    """Do the same for all inboxes of a server, and return how many messages that were.

    *prefix*: of the broker's keys.  It walks through all keys, so it is for who leaves.  For a user
    who may not do that it looks at the inboxes of *lists* only.
    """
    begins = f"{prefix}{INBOX_PREFIX}".encode()
    try:
        keys = list(client.scan_iter(match=_escaped(begins) + b"*", count=1000))
    except redis.exceptions.NoPermissionError:
        keys = [begins + one.encode() for one in lists]
    return sum(bring_back(client, key, key.removeprefix(begins)) for key in keys)


def _escaped(text: bytes) -> bytes:
    return re.sub(rb"([\\*?\[\]])", rb"\\\1", text)


def _is_error(reply: Any) -> bool:
    return isinstance(reply, redis.ResponseError)

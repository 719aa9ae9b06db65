"""Connections to a Redis and scripts for it, below whatever is asked: ledger and broker."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import redis
from redis import exceptions as errors

from celery_reliable.compat import note, noted
from celery_reliable.compat.redis import ask, has_something_to_read

__all__ = [
    "Line",
    "Script",
    "by_position",
    "is_of_cluster",
    "is_transient",
    "is_undone",
    "left_out_when_full",
    "losing",
    "refuses_writes",
]

#: Errors after which nothing is known about whether the command was executed, or that pass by
#: themselves: a server that loads its data, a replica that is about to be promoted, a cluster
#: without a slot.
_PASSING = (
    errors.ConnectionError,
    errors.TimeoutError,
    errors.BusyLoadingError,
    errors.ReadOnlyError,
    errors.TryAgainError,
    errors.ClusterDownError,
    errors.MasterDownError,
    OSError,
)
#: The same as they read before Redis 7 from the middle of a script, and those without a class.  The
#: last one ends a blocking command of a master that is made a replica.
_PASSING_REPLY = re.compile(
    r"(?:^|-)(?:READONLY|LOADING|MASTERDOWN|NOREPLICAS|TRYAGAIN|CLUSTERDOWN|BUSY|UNBLOCKED) "
)
#: What a server says that takes no writes: alone, in a script, in a transaction.  Redis-py takes
#: the first word from some.
_REFUSING_REPLY = re.compile(
    r"(?:^|-|caused error: )(?:READONLY|NOREPLICAS|OOM|MISCONF) |used memory > 'maxmemory'"
    r"|write against a read only replica"
)

_LISTED = re.compile(r"^(KEYS|ARGV)\.(\w+)", re.MULTILINE)
_USED = re.compile(r"\b(KEYS|ARGV|FIRST)\.(\w+)")


def is_transient(exc: BaseException) -> bool:
    """Whether an error says nothing of what was asked, and may be another one a moment later."""
    return isinstance(exc, _PASSING) or _PASSING_REPLY.search(str(exc)) is not None


def refuses_writes(exc: BaseException) -> bool:
    """Whether a server says that it takes no writes as it is: a replica, one that misses its own
    replicas, one that is full, or that cannot save.
    """
    return isinstance(exc, redis.RedisError) and _REFUSING_REPLY.search(str(exc)) is not None


@contextmanager
def left_out_when_full() -> Iterator[None]:
    """Leave out what a full server refuses, and a worker that starts does not need just now."""
    try:
        yield
    except redis.ResponseError as exc:
        # A replica, or a master without its replicas, is a lost connection (`losing`).
        if not refuses_writes(exc):
            raise


def is_of_cluster(exc: BaseException) -> bool:
    """Whether an error is what a node of a Redis Cluster says of keys that are elsewhere."""
    return isinstance(exc, (errors.AskError, errors.ClusterCrossSlotError))


def _undone(exc: BaseException) -> BaseException:
    """Note on an error that nothing can have been executed of what it is about."""
    note(exc, "undone", True)
    return exc


def is_undone(exc: BaseException) -> bool:
    """Whether that was noted."""
    return bool(noted(exc, "undone"))


def losing(connection_class: Any) -> Any:
    """Return a class of connections for which such a reply is a lost connection.

    Whoever connects anew may find another server there: that which was promoted instead.
    """

    class Connection(connection_class):
        def read_response(self, *args: Any, **kwargs: Any) -> Any:
            try:
                return super().read_response(*args, **kwargs)
            except redis.BusyLoadingError as exc:
                _undone(exc)
                raise
            except redis.ResponseError as exc:
                if not is_transient(exc):
                    raise
                self.disconnect()
                # What is refused was not begun.
                raise _undone(redis.ConnectionError(f"{type(exc).__name__}: {exc}")) from exc

    return Connection


class Line:
    """Asks several things of a server in one round trip, on one connection; for one thread at a
    time.
    """

    def __init__(self, pool: redis.ConnectionPool) -> None:
        self._connection: Any = pool.make_connection()

    def ask(self, *commands: Sequence[Any]) -> list[Any]:
        """Return what each command is answered; an error reply is returned as its exception.

        Raises redis-py's errors when the connection fails: then nothing is known of any command,
        unless the error tells that nothing was sent (`is_undone`).
        """
        connection = self._connection
        try:
            # What the server has closed meanwhile can be read; nothing else can.
            if has_something_to_read(connection):
                connection.disconnect()
        except (redis.ConnectionError, redis.TimeoutError, OSError):
            connection.disconnect()
        try:
            connection.connect()
        except (redis.RedisError, OSError) as exc:
            _undone(exc)
            raise
        try:
            return ask(connection, commands)
        except BaseException:
            # A reply that nobody has read would be taken for the next one.
            connection.disconnect()
            raise

    def close(self) -> None:
        """Close the connection; it is made anew when something is asked."""
        self._connection.disconnect()


@dataclass(frozen=True)
class Script:
    """A text, and the digest by which a server knows it."""

    name: str
    text: str
    sha: str

    @classmethod
    def of(cls, name: str, text: str) -> Script:
        """Return the script of this text."""
        return cls(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


def by_position(text: str, *before: str) -> str:
    """Return a script as Redis takes it, with ``KEYS[1]`` for ``KEYS.record``, say.

    The header lists keys and arguments in the order in which they are sent; the keys *before* those
    are in every header.  ``FIRST.members`` is the number of the first of those of which there may
    be any number.  Raises KeyError where the body has a name that the header does not list.
    """
    header, end, body = text.partition("\n]]\n")
    at: dict[tuple[str, str], str] = {}
    for kind, names in (("KEYS", list(before)), ("ARGV", [])):
        names += [name for of, name in _LISTED.findall(header) if of == kind]
        for number, name in enumerate(names, 1):
            at[kind, name], at["FIRST", name] = f"{kind}[{number}]", str(number)
    return header + end + _USED.sub(lambda found: at[found[1], found[2]], body)

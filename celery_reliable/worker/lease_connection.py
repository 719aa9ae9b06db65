"""The connection of a worker's heartbeat, by whose end the witness sees the worker's death."""

from __future__ import annotations

import os
import socket
from typing import Any

from celery_reliable.app import Reliable
from celery_reliable.compat.redis import socket_of
from celery_reliable.native_threads import native_lock, wait_readable

__all__ = ["LeaseConnection"]

#: A reply is awaited for so small a part of the lease: one that takes longer is as good as none.
#: So there are at most so many sockets whose replies can still come while the lease holds.
_REPLIES_IN_A_LEASE = 5


class LeaseConnection:
    """One connection to the ledger's server, for one thread, which no child process inherits.

    A child that kept it open would hide the worker's death.  `ledger` goes over it, and raises
    LedgerUnavailable when a reply takes longer than a fifth of the lease.
    """

    def __init__(self, reliable: Reliable) -> None:
        self.ledger = reliable.own_ledger(
            reply_timeout_seconds=reliable.config.lease_seconds / _REPLIES_IN_A_LEASE,
            patience_seconds=0,
            single=True,
        )
        self._connection: Any = self.ledger.workers.connection
        #: The server's number of the connection, and the socket of which that is known.
        self._client_id = 0
        self._known_socket: socket.socket | None = None
        self._waker, self._woken = socket.socketpair()
        # No fork falls between a socket's making and its being known.
        self._fork_lock = native_lock()
        os.register_at_fork(
            before=self._fork_lock.acquire,
            after_in_parent=self._fork_lock.release,
            after_in_child=self._close_in_child,
        )

    @property
    def is_open(self) -> bool:
        """Whether it is connected, as far as this side knows."""
        return socket_of(self._connection) is not None

    @property
    def is_another(self) -> bool:
        """Whether it was made anew since `identify`, so that the server was told of an old one."""
        return socket_of(self._connection) is not self._known_socket

    def identify(self) -> int:
        """Connect if necessary; return the connection's id at the server, or 0 when the server does
        not tell it.  Raises LedgerUnavailable.
        """
        with self._fork_lock:
            self._client_id, self._known_socket = self.ledger.workers.client_id(
                self._connection, self._known_socket, self._client_id
            )
        return self._client_id

    def wait(self, seconds: float) -> bool:
        """Wait so long, or until `wake`; True at once when the connection was cut."""
        sock = socket_of(self._connection)
        readers = [self._woken] if sock is None else [self._woken, sock]
        try:
            return sock in wait_readable(readers, seconds)
        except (OSError, ValueError):
            return True

    def wake(self) -> None:
        """End a `wait` of the connection's thread."""
        try:
            self._waker.send(b"x")
        except OSError:
            # The thread has ended already.
            pass

    def disconnect(self) -> None:
        """Close it; the next command connects anew."""
        self._connection.disconnect()

    def close_late(self, *, is_replaced: bool) -> None:
        """Close the sockets on which replies were late: all when the server knows a newer one, else
        those whose replies can no longer come in time.
        """
        with self._fork_lock:
            self._connection.close_left_open(0 if is_replaced else _REPLIES_IN_A_LEASE)

    def close(self) -> None:
        """Close it for good."""
        self.ledger.close()

    def _close_in_child(self) -> None:
        left_open = self._connection.left_open
        for sock in (socket_of(self._connection), *left_open, self._waker, self._woken):
            if sock is not None:
                try:
                    os.close(sock.detach())
                except OSError:
                    continue
        self._fork_lock.release()

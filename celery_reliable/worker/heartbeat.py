"""The thread of a worker's main process that renews its lease."""

from __future__ import annotations

import os
import socket
import time
from contextlib import closing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from celery.worker import state

from celery_reliable import clock, events
from celery_reliable.app import Reliable
from celery_reliable.compat.redis import socket_of
from celery_reliable.exceptions import LedgerForbidden, LedgerRefused, LedgerUnavailable
from celery_reliable.ledger import Ledger, answers, taken_from, to_stop
from celery_reliable.log import logger
from celery_reliable.native_threads import NativeThread, is_patched, native_lock, wait_readable

if TYPE_CHECKING:
    from celery_reliable.worker.worker_step import WorkerStep

__all__ = [
    "Heartbeat",
    "LeaseConnection",
    "why_no_witness",
]

#: A connection that is listed for longer after it was closed is a proxy's.
_GONE_SECONDS = 1.0
_LOOK_SECONDS = 0.02


def why_no_witness(reliable: Reliable) -> str:
    """Return why a lost connection of this process would prove nothing, and what to change; empty
    when it proves a death.

    Not every server tells who is connected.  And behind a proxy with a pool of connections the
    server sees those of the proxy, which outlive the worker or end while it lives.

    Tries that with a connection which it opens and closes.  Of a server that does not answer now it
    assumes the best.
    """
    if not reliable.config.witness_seconds:
        return "WITNESS_SECONDS is 0."
    own = partial(reliable.own_ledger, reply_timeout_seconds=5.0, patience_seconds=3.0)
    with closing(own()) as watcher, closing(own(single=True)) as tried:
        with suppress(LedgerUnavailable):
            return _try(watcher, tried)
        return ""


def _try(watcher: Ledger, tried: Ledger) -> str:
    ids = [str(tried.workers.client_id(tried.workers.connection, None, 0)[0])]
    listed = watcher.workers.connected(ids)
    if ids == ["0"] or listed is None:
        return (
            "The ledger's Redis does not let its user run CLIENT ID and CLIENT LIST. Allow both "
            "(ACL SETUSER ... +client)."
        )
    tried.close()
    deadline = time.monotonic() + _GONE_SECONDS
    while listed and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
        listed = watcher.workers.connected(ids)
        if listed == set():
            return ""
    return (
        "What is connected to the ledger's Redis is not this worker but something between, which "
        "keeps connections of its own. Let REDIS_URL name the server itself."
    )


#: A reply is awaited for so small a part of the lease: one that takes longer is as good as none.
#: So there are at most so many sockets whose replies can still come while the lease holds.
_REPLIES_IN_A_LEASE = 5


class LeaseConnection:
    """One connection to the ledger's server, for one thread, which no child process inherits.  By
    its end a pass sees the worker's death.

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
        # The thread may have ended already.
        with suppress(OSError):
            self._waker.send(b"x")

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
                with suppress(OSError):
                    os.close(sock.detach())
        self._fork_lock.release()


#: The pauses after a beat that failed, before another try to register, and after a beat that found
#: the worker declared dead.
_RETRY_SECONDS, _REGISTER_SECONDS, _DEAD_RETRY_SECONDS = 0.2, 1.0, 0.5
#: The next beat comes so soon while somebody waits for what it tells: a taken claim is being
#: stopped, and the task's next attempt may wait for that; or a task is struck, and goes on when
#: that is heard to be over.
_AWAITED_SECONDS = 0.5
_WARN_EVERY_SECONDS = 10.0
#: So often a worker hears of orders, also where its lease is long: they are obeyed within 3 s.
_ORDERS_SECONDS = 2.0


class Heartbeat(NativeThread):
    """Renews one worker's lease, on a connection of its own.

    It waits on that connection's socket, so that it connects anew at once when the connection was
    cut, and that never looks like a death.
    """

    def __init__(self, host: WorkerStep) -> None:
        super().__init__("celery-reliable-heartbeat")
        self._host = host
        self._process = host.process
        self._config = host.reliable.config
        self.connection = LeaseConnection(host.reliable)
        self._workers = self.connection.ledger.workers
        self._warned_at = 0.0
        self._every_seconds = min(self._config.heartbeat_seconds, _ORDERS_SECONDS)
        #: Why the end of the connection would prove nothing; empty when it proves a death.
        self._no_witness = ""

    def register(self) -> None:
        """Take the lease, before the thread starts; waits for a ledger that is away.

        Raises LedgerForbidden for want of a right, and what Celery ends a worker with when that was
        asked to end meanwhile.
        """
        while True:
            try:
                self._no_witness = why_no_witness(self._host.reliable)
                self._register()
                break
            except LedgerForbidden:
                raise
            except (LedgerUnavailable, LedgerRefused) as exc:
                if self._may_warn():
                    logger.warning(
                        "worker_not_registered worker=%s error=%s", self._process.id, exc
                    )
                state.maybe_shutdown()
                time.sleep(_REGISTER_SECONDS)
        if self._no_witness and self._config.witness_seconds:
            logger.warning(
                "no_witness worker=%s seconds_to_recovery=%s reason=%s",
                self._process.id,
                self._config.lease_seconds + self._config.sweep_seconds,
                self._no_witness,
            )
        if is_patched():
            # A patched socket belongs to the thread that connected it.
            self._process.doubt()
            self.connection.disconnect()

    def run(self) -> None:
        """Renew until told to stop."""
        try:
            self._run()
        finally:
            self._process.doubt()
            # By its own thread, like all that is done with the connection.
            self.connection.close()

    def stop(self) -> None:
        """End the thread, which closes the connection."""
        self.ask_to_stop()
        self.connection.wake()
        self.join(self._config.heartbeat_seconds)

    def _register(self) -> None:
        while True:
            sent_at = clock.now()
            answer = self._workers.register(
                self._process.id,
                lease_ms=self._config.lease_ms,
                client_id=self._witnessed_id(),
                facts={**self._host.facts(), "no_witness": self._no_witness},
            )
            if isinstance(answer, answers.Registered):
                break
            # The reply to an earlier call was lost, and that lease has lapsed.  Nothing is claimed
            # under this id, so it can be left at once.
            self._process.reborn()
        # Before anything is consumed, and before the lease counts: when the server goes away
        # meanwhile, it does not know the connection any more that was told to it.
        self._process.obey(self.connection.ledger.orders.read())
        self._process.renewed(sent_at + self._config.lease_seconds)
        events.worker_registered(app=self._host.app, worker=self._process.id)

    def _run(self) -> None:
        # The witness is to know a new connection before it misses the old one.
        wait = self._every_seconds if self.connection.is_open else 0.0
        while True:
            is_cut = self.connection.wait(wait)
            if self.stop_asked():
                break
            try:
                if is_cut:
                    # From now on the witness may take this worker for dead.
                    self._process.doubt()
                    self.connection.disconnect()
                wait = self._beat()
            except (LedgerUnavailable, LedgerRefused) as exc:
                if isinstance(exc, LedgerUnavailable):
                    # The server closed the connection, or its reply is late: then the socket stays
                    # open until the server knows the next one, or the lease is over.
                    self._process.doubt()
                    self.connection.close_late(is_replaced=False)
                if self._may_warn():
                    logger.warning("lease_not_renewed worker=%s error=%s", self._process.id, exc)
                wait = _RETRY_SECONDS
            except Exception as exc:
                # The worker lives by this thread: whatever goes wrong in one beat, the next is
                # tried.
                logger.error(
                    "heartbeat_failed worker=%s error=%s", self._process.id, exc, exc_info=exc
                )
                wait = self._every_seconds / 2

    def _beat(self) -> float:
        """Renew the lease; return the seconds until the next beat."""
        config, process = self._config, self._process
        if self._host.is_stalled:
            logger.error("main_loop_stalled worker=%s", process.id)
            return self._every_seconds
        sent_at = clock.now()
        beat = self._workers.heartbeat(
            process.id,
            lease_ms=config.lease_ms,
            client_id=self._witnessed_id(),
            doing=self._host.seen.told(),
        )
        is_stopping = False
        self._host.orders.to_end = to_stop(beat, process.id)
        self._host.claims.n_known = beat.n_claims
        for claim in taken_from(beat, process.id):
            if self._host.claims.stop(claim):
                self._workers.acknowledge(claim)
            else:
                is_stopping = True
        if isinstance(beat, answers.Renewed):
            self._warned_at = 0.0
            self.connection.close_late(is_replaced=True)
            if self.connection.is_another:
                # It was cut meanwhile, and the server was told of the one before: to the witness
                # this worker is gone until the next beat.
                process.doubt()
                return _RETRY_SECONDS
            process.renewed(sent_at + config.lease_seconds)
            process.heard_time(beat.now_ms)
            if beat.version != process.orders.version:
                process.obey(self.connection.ledger.orders.read())
            is_awaited = is_stopping or process.orders.has_strikes
            return min(_AWAITED_SECONDS, self._every_seconds) if is_awaited else self._every_seconds
        process.lost()
        if isinstance(beat, answers.Forgotten):
            # The sweeper has finished with what this worker held, which goes on as another one.
            process.reborn()
            self._register()
            return self._every_seconds
        logger.warning("worker_was_declared_dead worker=%s", process.id)
        return _DEAD_RETRY_SECONDS

    def _witnessed_id(self) -> int:
        """Return the id of the connection, for the server to watch; 0 when nobody can."""
        client_id = self.connection.identify()
        return 0 if self._no_witness else client_id

    def _may_warn(self) -> bool:
        """Whether to say that something failed: once in a while as long as it does."""
        now = time.monotonic()
        if now - self._warned_at < _WARN_EVERY_SECONDS:
            return False
        self._warned_at = now
        return True

"""The thread of a worker's main process that renews its lease."""

from __future__ import annotations

import os
import socket
import time
from typing import Any, Protocol

from celery import Celery
from celery.worker import state

from celery_reliable import clock, events
from celery_reliable.app import Reliable
from celery_reliable.broker import Unacked
from celery_reliable.compat.redis import socket_of
from celery_reliable.context import WorkerProcess
from celery_reliable.exceptions import (
    LedgerForbidden,
    LedgerRefused,
    LedgerUnavailable,
)
from celery_reliable.ledger import answers
from celery_reliable.model import Claim
from celery_reliable.native_threads import (
    NativeThread,
    is_patched,
    native_lock,
    wait_readable,
)
from celery_reliable.worker.witness import why_no_witness

__all__ = ["Heartbeat"]

_RETRY_SECONDS = 0.2
_REGISTER_SECONDS = 1.0
_WARN_EVERY_SECONDS = 10.0
#: A reply is awaited for so small a part of the lease.
_REPLIES_IN_A_LEASE = 5
_DEAD_RETRY_SECONDS = 0.5
_STOPPING_SECONDS = 0.5


class Host(Protocol):
    """What the threads ask of the worker they belong to."""

    app: Celery
    reliable: Reliable
    process: WorkerProcess
    #: Whether its shutdown has begun.
    is_leaving: bool

    @property
    def unacked(self) -> Unacked | None:
        """The worker's unacked hash, once it consumes."""

    @property
    def is_stalled(self) -> bool:
        """Whether the main loop has not turned for STALL_SECONDS."""

    def facts(self) -> dict[str, Any]:
        """What others may want to know of the worker."""

    def runs(self, claim: Claim) -> bool:
        """Whether the worker knows of somebody who runs the claim."""

    def has_given_up(self, claim: Claim) -> bool:
        """Whether nobody can have begun by a claim."""

    def stop_taken(self, claim: Claim) -> bool:
        """Stop a claim that was taken from the worker; True when nobody runs it any more."""


class Heartbeat(NativeThread):
    """Renews one worker's lease, on a connection of its own.

    It waits on that connection's socket: a connection that was cut is renewed at once and never
    looks like a death.
    """

    def __init__(self, step: Host) -> None:
        super().__init__("celery-reliable-heartbeat")
        self._step = step
        self._process = step.process
        self._config = step.reliable.config
        # A reply that takes longer than a quarter of the lease is as good as none.
        self._ledger = step.reliable.own_ledger(
            reply_timeout_seconds=self._config.lease_seconds / _REPLIES_IN_A_LEASE,
            patience_seconds=0,
            single=True,
        )
        self._connection: Any = self._ledger.workers.connection
        self._known_socket: socket.socket | None = None
        self._client_id = 0
        self._warned_at = 0.0
        self._no_witness = ""
        self._waker, self._woken = socket.socketpair()
        self._fork_lock = native_lock()
        # The witness sees a death by this connection's end; a child that inherited it would keep it
        # open.
        os.register_at_fork(
            before=self._fork_lock.acquire,
            after_in_parent=self._fork_lock.release,
            after_in_child=self._close_in_child,
        )

    def _close_in_child(self) -> None:
        left_open = self._connection.left_open
        for sock in (socket_of(self._connection), *left_open, self._waker, self._woken):
            if sock is not None:
                try:
                    os.close(sock.detach())
                except OSError:
                    continue
        self._fork_lock.release()

    def register(self) -> None:
        """Take the lease, before the thread starts; waits for a ledger that is away or full.

        Raises LedgerForbidden for want of a right, and what Celery ends a worker with when that was
        asked to end meanwhile.
        """
        while True:
            try:
                self._no_witness = why_no_witness(self._step.reliable)
                self._register()
                break
            except LedgerForbidden:
                raise
            except (LedgerUnavailable, LedgerRefused) as exc:
                if self._may_warn():
                    events.worker_not_registered(worker=self._process.id, error=exc)
                state.maybe_shutdown()
                time.sleep(_REGISTER_SECONDS)
        if self._no_witness and self._config.witness_seconds:
            events.no_witness(
                worker=self._process.id,
                seconds_to_recovery=self._config.lease_seconds + self._config.sweep_seconds,
                reason=self._no_witness,
            )
        if is_patched():
            # A patched socket belongs to the thread that connected it.
            self._process.doubt()
            self._connection.disconnect()

    def _may_warn(self) -> bool:
        """Whether to say that something failed: once in a while as long as it does."""
        now = time.monotonic()
        if now - self._warned_at < _WARN_EVERY_SECONDS:
            return False
        self._warned_at = now
        return True

    def _tell_not_renewed(self, exc: Exception) -> None:
        if self._may_warn():
            events.lease_not_renewed(worker=self._process.id, error=exc)

    def _register(self) -> None:
        sent_at = clock.now()
        with self._fork_lock:
            self._look_at_connection()
        self._ledger.workers.register(
            self._process.id,
            lease_ms=self._config.lease_ms,
            client_id=self._witnessed_id(),
            facts={**self._step.facts(), "no_witness": self._no_witness},
        )
        self._process.renewed(sent_at + self._config.lease_seconds)
        events.worker_registered(worker=self._process.id)

    def run(self) -> None:
        """Renew until told to stop."""
        try:
            self._run()
        finally:
            self._process.doubt()
            # By its own thread, like all that is done with the connection.
            self._ledger.close()

    def _run(self) -> None:
        # The witness is to know a new connection before it misses the old one.
        wait = self._config.heartbeat_seconds if socket_of(self._connection) is not None else 0.0
        while True:
            is_cut = self._wait(wait)
            if self.stop_asked():
                break
            try:
                if is_cut:
                    # From now on the witness may take this worker for dead.
                    self._process.doubt()
                    self._connection.disconnect()
                wait = self._beat()
            except LedgerUnavailable as exc:
                # The server closed the connection, or its reply is late: then the connection stays
                # open until the server knows the next one, or the lease is over.
                self._process.doubt()
                with self._fork_lock:
                    self._connection.close_left_open(_REPLIES_IN_A_LEASE)
                self._tell_not_renewed(exc)
                wait = _RETRY_SECONDS
            except LedgerRefused as exc:
                self._tell_not_renewed(exc)
                wait = _RETRY_SECONDS
            except Exception as exc:
                # This thread is the worker's life; whatever goes wrong in one beat, the next is
                # tried.
                events.heartbeat_failed(worker=self._process.id, error=exc)
                wait = self._config.heartbeat_seconds / 2

    def stop(self) -> None:
        """End the thread, which closes the connection."""
        self.ask_to_stop()
        try:
            self._waker.send(b"x")
        except OSError:
            # It has ended already.
            pass
        self.join(self._config.heartbeat_seconds)

    def _wait(self, seconds: float) -> bool:
        """Wait for the next beat; True at once when the connection was cut."""
        sock = socket_of(self._connection)
        readers = [self._woken] if sock is None else [self._woken, sock]
        try:
            return sock in wait_readable(readers, seconds)
        except (OSError, ValueError):
            return True

    def _beat(self) -> float:
        config, process = self._config, self._process
        if self._step.is_stalled:
            events.main_loop_stalled(worker=process.id)
            return config.heartbeat_seconds
        sent_at = clock.now()
        with self._fork_lock:
            self._look_at_connection()
        beat = self._ledger.workers.heartbeat(
            process.id, lease_ms=config.lease_ms, client_id=self._witnessed_id()
        )
        is_stopping = False
        for claim in beat.claims(process.id):
            is_stopping |= not self._stop_taken(claim)
        if isinstance(beat, answers.Renewed):
            self._warned_at = 0.0
            with self._fork_lock:
                self._connection.close_left_open()
            if socket_of(self._connection) is not self._known_socket:
                # It was cut meanwhile, and the server was told of the connection before: to the
                # witness this worker is gone until the next beat.
                process.doubt()
                return _RETRY_SECONDS
            process.renewed(sent_at + config.lease_seconds)
            # A successor may wait to hear that what was taken has been stopped.
            return _STOPPING_SECONDS if is_stopping else config.heartbeat_seconds
        process.lost()
        if isinstance(beat, answers.Forgotten):
            # The sweeper has finished with what this worker held; it goes on as a stranger to all
            # that.
            process.reborn()
            self._register()
            return config.heartbeat_seconds
        events.worker_was_declared_dead(worker=process.id)
        return _DEAD_RETRY_SECONDS

    def _stop_taken(self, claim: Claim) -> bool:
        if not self._step.stop_taken(claim):
            return False
        self._ledger.workers.acknowledge(claim)
        return True

    def _look_at_connection(self) -> None:
        """Connect if necessary, and learn the connection's id at the server."""
        self._client_id, self._known_socket = self._ledger.workers.client_id(
            self._connection, self._known_socket, self._client_id
        )

    def _witnessed_id(self) -> int:
        return 0 if self._no_witness else self._client_id

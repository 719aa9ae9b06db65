"""The threads of a worker's main process: one renews its lease, one runs the sweeper's passes."""

from __future__ import annotations

import logging
import os
import socket
import time
from typing import Any, Protocol

from celery import Celery
from celery.worker import state

from celery_reliable import clock
from celery_reliable.application import Reliable
from celery_reliable.exceptions import (
    LedgerForbidden,
    LedgerRefused,
    LedgerUnavailable,
    ReliableError,
)
from celery_reliable.model import Claim, Reply
from celery_reliable.process import WorkerProcess
from celery_reliable.rooms import Room
from celery_reliable.sweeper import Sweeper
from celery_reliable.threads import (
    NativeThread,
    fork_gate,
    is_patched,
    native_lock,
    wait_readable,
)
from celery_reliable.witness import why_no_witness

__all__ = ["Heartbeat", "Passes"]

logger = logging.getLogger(__name__)

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
    def room(self) -> Room | None:
        """The worker's room, once it consumes."""

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
        for sock in (self._connection._sock, *left_open, self._waker, self._woken):
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
                self._warn("worker_not_registered", exc)
                state.maybe_shutdown()
                time.sleep(_REGISTER_SECONDS)
        if self._no_witness and self._config.witness_seconds:
            logger.warning(
                "no_witness worker=%s seconds_to_recovery=%g reason=%s",
                self._process.id,
                self._config.lease_seconds + self._config.sweep_seconds,
                self._no_witness,
            )
        if is_patched():
            # A patched socket belongs to the thread that connected it.
            self._process.doubt()
            self._connection.disconnect()

    def _warn(self, event: str, exc: Exception) -> None:
        """Say what failed, once in a while as long as it does."""
        now = time.monotonic()
        if now - self._warned_at >= _WARN_EVERY_SECONDS:
            self._warned_at = now
            logger.warning("%s worker=%s error=%s", event, self._process.id, exc)

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
        logger.info("worker_registered worker=%s", self._process.id)

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
        wait = self._config.heartbeat_seconds if self._connection._sock is not None else 0.0
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
                self._warn("lease_not_renewed", exc)
                wait = _RETRY_SECONDS
            except LedgerRefused as exc:
                self._warn("lease_not_renewed", exc)
                wait = _RETRY_SECONDS
            except Exception:
                # This thread is the worker's life; whatever goes wrong in one beat, the next is
                # tried.
                logger.exception("heartbeat_failed worker=%s", self._process.id)
                wait = self._config.heartbeat_seconds / 2

    def stop(self) -> None:
        """End the thread, which closes the connection."""
        self.ask_to_stop()
        try:
            self._waker.send(b"x")
        except OSError:
            logger.debug("heartbeat_already_closed")
        if not self.join(self._config.heartbeat_seconds):
            logger.debug("heartbeat_still_waits")

    def _wait(self, seconds: float) -> bool:
        """Wait for the next beat; True at once when the connection was cut."""
        sock = self._connection._sock
        readers = [self._woken] if sock is None else [self._woken, sock]
        try:
            return sock in wait_readable(readers, seconds)
        except (OSError, ValueError):
            return True

    def _beat(self) -> float:
        config, process = self._config, self._process
        if self._step.is_stalled:
            logger.error("lease_not_renewed worker=%s reason=main_loop_stalled", process.id)
            return config.heartbeat_seconds
        sent_at = clock.now()
        with self._fork_lock:
            self._look_at_connection()
        beat = self._ledger.workers.heartbeat(
            process.id, lease_ms=config.lease_ms, client_id=self._witnessed_id()
        )
        is_stopping = False
        for claim in beat.taken:
            is_stopping |= not self._stop_taken(claim)
        if beat.reply is Reply.RENEWED:
            self._warned_at = 0.0
            with self._fork_lock:
                self._connection.close_left_open()
            if self._connection._sock is not self._known_socket:
                # It was cut meanwhile, and the server was told of the connection before: to the
                # witness this worker is gone until the next beat.
                process.doubt()
                return _RETRY_SECONDS
            process.renewed(sent_at + config.lease_seconds)
            # A successor may wait to hear that what was taken has been stopped.
            return _STOPPING_SECONDS if is_stopping else config.heartbeat_seconds
        process.lost()
        if beat.reply is Reply.FORGOTTEN:
            # The sweeper has finished with what this worker held; it goes on as a stranger to all
            # that.
            process.reborn()
            self._register()
            return config.heartbeat_seconds
        logger.warning("worker_was_declared_dead worker=%s", process.id)
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


class Passes(NativeThread):
    """Runs the sweeper's passes whenever none finished within SWEEP_SECONDS.

    Recovery that was only a task would wait in the very queues that it repairs.
    """

    # They publish, store and call receivers, as tasks do.
    shares_locks = True

    def __init__(self, step: Host) -> None:
        super().__init__("celery-reliable-passes")
        self._step = step
        self._sweeper: Sweeper | None = None
        #: Claims that nobody runs, and since when that is so, by the monotonic clock.
        self._orphans: dict[tuple[str, int], float] = {}

    def run(self) -> None:
        """Sweep until told to stop."""
        wait = 0.0
        while not self.stop_asked(wait):
            # Passes publish, store results and call receivers, with locks that children need.
            with fork_gate:
                wait = self._sweep()
        if self._sweeper is not None:
            self._sweeper.close()

    def _sweep(self) -> float:
        """Run what is due, and return the seconds after which to ask again."""
        wait = self._step.reliable.config.sweep_seconds
        try:
            if self._sweeper is None:
                self._sweeper = Sweeper(self._step.app)
            self._tell_of_lost_pop(self._sweeper)
            _, wait = self._sweeper.run_if_due()
            self._look_at_own_claims(self._sweeper)
        except ReliableError as exc:
            logger.warning("pass_failed error=%s", exc)
        except Exception:
            logger.exception("pass_failed")
            if self._sweeper is not None:
                self._sweeper.broker.close()
        return wait

    def stop(self) -> None:
        """End the thread after the pass that runs."""
        self.ask_to_stop()

    def _tell_of_lost_pop(self, sweeper: Sweeper) -> None:
        """Have passes look at what the worker may have popped on a connection that was lost."""
        room = self._step.room
        at = room.lost_pop_at if room is not None else None
        if room is None or at is None or time.monotonic() < at:
            return
        ago_ms = int(1000 * (time.monotonic() - at)) + 2 * sweeper.config.lease_ms
        sweeper.ledger.workers.look_ahead(ago_ms=ago_ms)
        if room.lost_pop_at == at:
            room.lost_pop_at = None

    def _look_at_own_claims(self, sweeper: Sweeper) -> None:
        """Lose claims that nobody runs, after two sightings, or release those by which nobody has
        begun: nobody else would while this worker lives.

        One that leaves stops its tasks and releases them by itself.
        """
        if self._step.is_leaving:
            return
        now = time.monotonic()
        claims = sweeper.ledger.workers.claims(self._step.process.id)
        gone = {
            (claim.task_id, claim.attempt)
            for claim, pid in claims.values()
            if not (_is_alive(pid) and self._step.runs(claim))
        }
        self._orphans = {key: self._orphans.get(key, now) for key in gone}
        # Two looks may follow each other at once, as whoever runs the next pass decides.
        apart = self._step.reliable.config.sweep_seconds / 2
        for task_id, attempt in [k for k, since in self._orphans.items() if now - since >= apart]:
            claim, _ = claims[task_id]
            if self._step.has_given_up(claim):
                sweeper.ledger.release(claim, due_in_ms=0)
            else:
                sweeper.losses.lose_orphan(claim)
            logger.warning("claim_without_process id=%s attempt=%d", task_id, attempt)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True

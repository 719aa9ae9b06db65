"""Who this process is to the ledger: the worker that it belongs to, and the attempt that it runs
right now.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from celery_reliable import clock, events
from celery_reliable.ledger import FOREVER, Ledger, answers
from celery_reliable.message import Envelope, Stamp
from celery_reliable.model import Claim, ClaimRequest, State, StoredResult, TaskRef
from celery_reliable.orders import NO_ORDERS, Order, Orders

__all__ = [
    "PutOff",
    "RunningAttempt",
    "WorkerProcess",
    "current_worker",
    "is_current",
    "is_forgotten",
    "put_off",
    "running",
    "set_current_worker",
]

#: How long a process waits for its worker to register again after it was declared dead.
_LEASE_PATIENCE_SECONDS = 30.0
_LEASE_POLL_SECONDS = 0.1


class _Shared(ctypes.Structure):
    """Memory that a worker's main process writes, and that the children that it forks read.

    The main process writes a new id before the lease of that id.  So a child that reads the lease
    first and the id last never takes a new lease for that of its old claim.
    """

    _fields_ = (
        ("incarnation", ctypes.c_uint),
        #: Whether the main process holds itself for registered and not declared dead.
        ("has_lease", ctypes.c_bool),
        #: When the lease that was last renewed runs out, by `clock.now`.
        ("lease_until", ctypes.c_double),
        #: Whether the worker sends events of tasks just now.
        ("sends_events", ctypes.c_bool),
        #: The version of the orders that the main process has heard of.
        ("told_version", ctypes.c_uint64),
    )


class WorkerProcess:
    """The identity of one worker: its main process and the children that it forks.

    ``base`` is new for every process start.  The worker's id is ``base`` and an incarnation, which
    grows when the worker registers again after having been declared dead; children read it from
    shared memory.
    """

    def __init__(self, nodename: str) -> None:
        #: The worker's name as Celery has it.
        self.nodename = nodename
        self.base = f"{nodename}/{secrets.token_hex(4)}"
        self.pid = os.getpid()
        # Anonymous and shared: what the main process writes, the children that it forks see at
        # once, without a descriptor or a name to leave behind.
        self._shared = _Shared.from_buffer(mmap.mmap(-1, ctypes.sizeof(_Shared)))
        #: As this process knows them, and the version for which it asked.
        self.orders, self._asked_for = NO_ORDERS, 0
        #: What the ledger's clock said, and when that was by `clock.now`.
        self._ledger_ms, self._ledger_at = 0, clock.now()
        #: Tokens of deliveries that were given back after they had been handed to a pool which
        #: cannot take them back.
        self.given_back: set[str] = set()

    has_lease = property(attrgetter("_shared.has_lease"))
    lease_until = property(attrgetter("_shared.lease_until"))
    told_version = property(attrgetter("_shared.told_version"))
    sends_events = property(
        attrgetter("_shared.sends_events"),
        lambda self, value: setattr(self._shared, "sends_events", value),
    )

    # -- orders of operators

    def obey(self, orders: Orders) -> None:
        """Take note of the orders that there are now; the children ask for them, too."""
        self.orders, self._asked_for = orders, orders.version
        self.heard_time(orders.now_ms)
        self._shared.told_version = orders.version

    def heard_time(self, now_ms: int) -> None:
        """Note what the ledger's clock said just now."""
        self._ledger_ms, self._ledger_at = now_ms, clock.now()

    def orders_now(self, read: Callable[[], Orders]) -> Orders:
        """Return the orders in any process of the worker; *read* is called when there are others
        than this process has read.
        """
        version = self.told_version
        if version != self._asked_for:
            self.orders, self._asked_for = read(), version
        return self.orders

    def order_against(self, queue: str) -> Order | None:
        """Return the order for which this worker begins nothing of a queue; None if there is none.
        For the main process.
        """
        orders = self.orders
        return orders.of_queue(queue, self.nodename, self.ledger_ms)

    @property
    def ledger_ms(self) -> int:
        """What the ledger's clock says about now, in ms."""
        return self._ledger_ms + int(1000 * (clock.now() - self._ledger_at))

    # -- the lease

    @property
    def id(self) -> str:
        """The worker's id in the ledger."""
        return f"{self.base}.{self._shared.incarnation}"

    def surely_holds(self, name: str) -> bool:
        """Whether nobody can have taken what was claimed or taken under the id *name*.

        False in doubt, and in a process that has outlived its main process.
        """
        is_here = self.pid in (os.getpid(), os.getppid())
        has_lease: bool = self._shared.has_lease
        return is_here and has_lease and clock.now() < self.lease_until and name == self.id

    def turns_to_claim(self) -> Iterator[str]:
        """Yield the worker's id to claim under.

        A caller whose claim finds no lease goes on: the id, by then perhaps a new one, is yielded
        every tenth of a second, for at most 30 seconds.
        """
        deadline = time.monotonic() + _LEASE_PATIENCE_SECONDS
        yield self.id
        while time.monotonic() < deadline:
            time.sleep(_LEASE_POLL_SECONDS)
            yield self.id

    def renewed(self, until: float) -> None:
        """Note that the lease holds until *until* (`clock.now`)."""
        self._shared.lease_until = until
        self._shared.has_lease = True

    def doubt(self) -> None:
        """Note that the lease holds only if the ledger says so."""
        self._shared.lease_until = 0.0

    def lost(self) -> None:
        """Note that the worker was declared dead."""
        self._shared.has_lease = False

    def reborn(self) -> None:
        """Take a new id, to which no claim of the one that was declared dead belongs."""
        self._shared.has_lease = False
        self._shared.lease_until = 0.0
        self._shared.incarnation += 1


@dataclass
class RunningAttempt:
    """The attempt that this process runs, with what happened to it on the way."""

    claim: Claim
    #: What its message carried.
    stamp: Stamp = field(default_factory=Stamp)
    #: Its message was not recorded when it was published.  Once the record is gone, nothing proves
    #: that the task has ended: the message, if it came again, would run again.
    is_adopted: bool = False
    #: The place of its object that it took in the step that began it, or had before.
    place: str = ""
    #: Nothing is left to settle: it has published its own id (retry), was settled with its result,
    #: or is no longer current.
    is_closed: bool = False
    #: Its result is stored and its record gone; what follows are hooks of the user's.
    is_settled: bool = False
    #: Its outcome was stored once more, as it was not known whether it had been.
    is_stored_again: bool = False
    #: What it published under its own id, to be sent when its body has unwound.
    unsent: Envelope | None = None
    #: What it published, and has a record that could not be withdrawn as the sending had failed, by
    #: its id: whether it is certain that none of the withdrawals was executed; None for nothing.
    in_doubt: dict[str, bool] | None = None
    #: It has published something under another id by which its task goes on: a member of its
    #: canvas, or a retry.
    goes_on: bool = False
    #: The canvas that it was replaced by.
    canvas: Any = None
    #: The result that was there then of a task that had the id before (`stored.seen`).
    stored: str = ""
    #: Ids of the members of that canvas, but for its own; not all of a large one.
    members: tuple[str, ...] = ()
    #: How long it may run without a touch; None: it has no limit.
    time_to_run_seconds: float | None = None
    #: When its time to run is up, by `clock.now`; None: it has no limit.
    deadline: float | None = None

    @property
    def is_replaced(self) -> bool:
        """Whether a canvas has its id."""
        return self.canvas is not None

    def fence(self, task: Any, state: str = "taken") -> None:
        """Close it, as it is no longer current, and tell so; *state* is that of its record."""
        self.is_closed = True
        events.task_fenced(
            task=task, task_id=self.claim.task_id, attempt=self.claim.attempt, state=state
        )


class PutOff:
    """The settlement of a process that takes its own messages: it is sent with the step that takes
    the next one.
    """

    def __init__(self) -> None:
        #: Whether this process takes its own messages just now.
        self.is_on = False
        #: Whether nothing of the user's runs between the task's outcome and that step.
        self.may_wait: Callable[[Any], bool] = lambda task: False
        #: What is to be settled, if there is something.
        self.claim: Claim | None = None
        self.task: Any = None
        self.result: StoredResult | None = None
        self.outcome = ""
        #: The database in which this process has stored a result and settled in one step.
        self.proven_db: int | None = None

    def takes(
        self, task: Any, claim: Claim, outcome: str, result: StoredResult | None = None
    ) -> bool:
        """Whether the settlement is put off; then it is as if it had been made."""
        if (
            not self.is_on
            or self.claim is not None
            or claim.is_troubled
            or (result is not None and result.db != self.proven_db)
            or not self.may_wait(task)
        ):
            return False
        self.claim, self.task, self.result, self.outcome = claim, task, result, outcome
        return True

    def clear(self) -> None:
        """Forget what was to be settled."""
        self.claim = self.task = self.result = None


#: That of this process.
put_off = PutOff()

#: The attempt that runs in this thread or greenlet.
running: ContextVar[RunningAttempt | None] = ContextVar("celery_reliable_running", default=None)

_worker: WorkerProcess | None = None


def current_worker() -> WorkerProcess | None:
    """Return the worker that this process belongs to; None outside of workers."""
    return _worker


def set_current_worker(worker: WorkerProcess | None) -> None:
    """Make this process, and the children it forks from now on, part of *worker*."""
    global _worker
    _worker = worker
    events.set_sender(worker)


def is_forgotten(ledger: Ledger, attempt: RunningAttempt) -> bool:
    """Whether an attempt has no record since the server lost it, and not because the task ended.

    Asks by a claim that does not carry the message.  Without a generation in the message that
    proves nothing: then False.  Waits for the ledger as long as it takes.
    """
    worker, claim, stamp = current_worker(), attempt.claim, attempt.stamp
    if worker is None or not stamp.generation:
        return False
    # The server may have forgotten the worker too.
    for name in worker.turns_to_claim():
        if ledger.find(claim.task_id, patience_seconds=FOREVER) is not None:
            return False
        request = ClaimRequest(
            TaskRef(claim.task_id, ""),
            epoch=stamp.epoch,
            generation=stamp.generation,
            worker=name,
            token=claim.token,
            pid=os.getpid(),
        )
        answer = ledger.claim(request, patience_seconds=FOREVER)
        if not isinstance(answer, answers.NoLease):
            return isinstance(answer, answers.Unrecorded)
    return False


def is_current(ledger: Ledger, attempt: RunningAttempt) -> bool:
    """Ask the ledger whether the attempt is the current one; waits for it as long as it takes.

    An attempt whose record the server has lost counts: nobody else would store its outcome.
    """
    claim = attempt.claim
    record = ledger.find(claim.task_id, patience_seconds=FOREVER)
    if record is None:
        return is_forgotten(ledger, attempt)
    return (
        record.state is State.RUNNING
        and record.attempt == claim.attempt
        and record.token == claim.token
    )

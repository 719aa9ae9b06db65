"""Celery's consumer: what it does with messages, acknowledgements and remote commands."""

from __future__ import annotations

from collections import ChainMap, deque
from collections.abc import Callable
from threading import get_ident
from typing import Any

from celery.worker.consumer.control import Control
from celery.worker.control import Panel

from celery_reliable.compat.relied import Behaviour, Kept, Name, Part, Used, relies_on

__all__ = [
    "QueuesHeldBack",
    "Slots",
    "acknowledge_at_once",
    "before_soft_shutdown",
    "cancel_by",
    "command_by",
    "hand_over_by",
    "handle_by",
]

_CONSUMER = "celery.worker.consumer.consumer:Consumer"
_HANDLER = f"{_CONSUMER}.create_task_handler"

#: The name under which Celery schedules an acknowledgement.
_ACKNOWLEDGING = frozenset({"ack_log_error", "reject_log_error"})


@relies_on(
    Name(_HANDLER, used_by="celery.worker.loops:asynloop"),
    Name(_HANDLER, used_by="celery.worker.loops:synloop"),
    Name(f"{_CONSUMER}.on_unknown_message", takes=("body", "message"), used_by=_HANDLER),
    Name(f"{_CONSUMER}.on_unknown_task", takes=("body", "message", "exc"), used_by=_HANDLER),
    Name(f"{_CONSUMER}.on_invalid_task", takes=("body", "message", "exc"), used_by=_HANDLER),
    Name(f"{_CONSUMER}.on_decode_error", takes=("message", "exc"), used_by=_HANDLER),
    part=Part.WORKER,
)
def handle_by(
    c: Any,
    *,
    create_task_handler: Callable[..., Any],
    on_unknown_message: Callable[..., Any],
    on_unknown_task: Callable[..., Any],
    on_invalid_task: Callable[..., Any],
    on_decode_error: Callable[[Any, Exception], None],
) -> None:
    """Replace what one consumer does with messages, and with messages that it cannot run.

    Replaces these methods of this one consumer, and ``on_decode_error`` of kombu's, which got it
    when it was made: Celery's signals come when a message is gone, and the setting
    `worker_consumer` is the user's.  Checked on Celery 5.6.3 and 5.7.0.  Without it a
    message that no worker can run is lost, or ends one worker after the other.
    """
    c.create_task_handler = create_task_handler
    c.on_unknown_message = on_unknown_message
    c.on_unknown_task = on_unknown_task
    c.on_invalid_task = on_invalid_task
    c.on_decode_error = c.task_consumer.on_decode_error = on_decode_error


@relies_on(
    Behaviour(
        "an acknowledgement is scheduled by call_soon_ack(p), or by call_soon(p)",
        lambda: (
            not all(
                Name(f"{_CONSUMER}.{name}", takes=("p",), used_by=_HANDLER).fault()
                for name in ("call_soon_ack", "call_soon")
            )
        ),
    ),
    Used(by=_HANDLER, name="ack_log_error"),
    Used(by=_HANDLER, name="reject_log_error"),
    part=Part.WORKER,
)
def acknowledge_at_once(c: Any) -> None:
    """Acknowledge at once what the main loop's thread acknowledges, not at the loop's next turn.

    With a solo pool the next turn comes only after the task has ended.  And tasks that end when
    they are delivered (expired, revoked) would count as prefetched until then, so fewer are taken.

    Replaces ``call_soon_ack`` of this one consumer (before Celery 5.7 ``call_soon``, for what is
    called ``ack_log_error`` and ``reject_log_error``).  Checked on Celery 5.6.3 and 5.7.0.  Without
    it a solo worker that is killed has acknowledged nothing of what it has run since it began.
    """
    name = "call_soon_ack" if hasattr(c, "call_soon_ack") else "call_soon"
    later, loop = getattr(type(c), name), get_ident()

    def soon(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        is_acknowledged = getattr(function, "__name__", "") in _ACKNOWLEDGING
        if is_acknowledged and get_ident() == loop:
            return function(*args, **kwargs)
        return later(c, function, *args, **kwargs)

    setattr(c, name, soon)


@relies_on(
    Name(f"{_CONSUMER}.cancel_active_requests", used_by="celery.apps.worker:on_cold_shutdown"),
    part=Part.WORKER,
)
def cancel_by(c: Any, cancel: Callable[[], None]) -> None:
    """Let *cancel* stop the running tasks at a cold shutdown.

    Replaces ``cancel_active_requests`` of this one consumer: it is called from a signal handler,
    and asks nobody.  Checked on Celery 5.6.3 and 5.7.0.  Without it a pool that cannot stop a task
    raises into whatever the main loop does then, and a message may be popped and never filed.
    """
    c.cancel_active_requests = cancel


@relies_on(
    Kept("celery.worker.consumer.control:Control.box"),
    Kept("celery.worker.pidbox:Pidbox.node"),
    Used(by="kombu.pidbox:Node.handle", name="handlers"),
    part=Part.WORKER,
)
def command_by(c: Any, name: str, around: Callable[..., Any]) -> None:
    """Let *around* handle a remote command of one worker.  It is given Celery's own handler, the
    worker's state and the command's arguments.  Call this after the consumer's steps are made.

    Sets ``handlers`` of the ``Node`` of this one worker: Celery's own table of commands, ``Panel``,
    is that of all workers of the process.  Checked on Celery 5.6.3 and 5.7.0.  Without it the
    ledger does not hear of what is revoked by remote command, which then outlives no worker.
    """
    own = Panel.data[name]

    def handle(state: Any, *args: Any, **kwargs: Any) -> Any:
        return around(own, state, *args, **kwargs)

    for step in c.steps:
        if isinstance(step, Control):
            node = step.box.node
            if not isinstance(node.handlers, ChainMap):
                node.handlers = ChainMap({}, Panel.data)
            node.handlers[name] = handle


@relies_on(Kept("kombu.messaging:Consumer._active_tags"), part=Part.WORKER)
class QueuesHeldBack:
    """Lets one consumer not consume some of its queues for a while, at a broker that delivers by
    itself.

    Reads ``Consumer._active_tags`` of kombu, for the queue of a delivery: AMQP tells only the tag
    of its consumer.  What is to be consumed, Celery keeps apart from that, so it is as before when
    the connection is made anew.  Checked on Celery 5.6.3 and 5.7.0 with kombu 5.7.0.  Without it
    workers go on taking from a queue that an operator has paused.
    """

    def __init__(self, c: Any) -> None:
        self._consumer = c
        self._held: dict[str, Any] = {}
        self._tags: dict[str, str] = {}

    def of_tag(self, tag: Any) -> str | None:
        """Return the queue of a delivery by the tag of its consumer; None if it is not known."""
        if tag not in self._tags:
            self._learn()
        return self._tags.get(tag)

    def _learn(self) -> None:
        consumer = self._consumer.task_consumer
        if consumer is not None:
            self._tags.update({tag: queue for queue, tag in consumer._active_tags.items()})

    def hold_back(self, is_held_back: Callable[[str], bool]) -> None:
        """Consume all queues but those of which *is_held_back* is true."""
        consumer = self._consumer.task_consumer
        if consumer is None:
            return
        self._learn()
        for queue in list(consumer.queues):
            if is_held_back(queue.name):
                self._held[queue.name] = queue
                consumer.cancel_by_queue(queue.name)
        for name in [one for one in self._held if not is_held_back(one)]:
            queue = self._held.pop(name)
            # A remote command may have cancelled it meanwhile.
            if name in self._consumer.app.amqp.queues.consume_from:
                consumer.add_queue(queue)
                consumer.consume()


_WORKER = "celery.worker.worker:WorkController"
_POOL_STEP = "celery.worker.components:Pool.create"

HandOver = Callable[[Any], Any]


@relies_on(
    Name(f"{_WORKER}._process_task", takes=("req",), used_by=f"{_WORKER}._process_task_sem"),
    Used(by=_POOL_STEP, name="process_task"),
    Used(by=_POOL_STEP, name="_process_task_sem"),
    part=Part.WORKER,
)
def hand_over_by(w: Any, ours: HandOver) -> HandOver:
    """Hand a worker's requests to its pool by *ours*, and return Celery's own function.

    Call this after the pool is made, and before the consumer is.  Replaces ``process_task`` and
    ``_process_task`` of this one worker: Celery has no public hook between a request and its pool.
    Checked on Celery 5.6.3 and 5.7.0.  Without it a plain task that was taken from a frozen worker
    runs there as well.
    """
    own: HandOver = w._process_task
    if w.process_task == own:
        w.process_task = ours
    w._process_task = ours
    return own


@relies_on(
    Used(by=_POOL_STEP, name="_quick_acquire"),
    Used(by=_POOL_STEP, name="_quick_release"),
    Kept("kombu.asynchronous.semaphore:LaxBoundedSemaphore._waiting"),
    part=Part.WORKER,
)
class Slots:
    """The slots of a worker's pool, of which each request takes one that is handed over.  Only
    workers with an event loop count slots; others hand over all that they fetch.

    Calls ``_quick_acquire`` and ``_quick_release`` of the worker, and reads ``_waiting`` of its
    semaphore: only a job that has ended gives a slot back otherwise, and Celery shows neither what
    waits there, nor for what.  Checked on Celery 5.6.3 and 5.7.0 with kombu 5.7.0.  Without it what
    waits behind a busy worker stays there, and a worker that dropped a few requests runs no more.
    """

    def __init__(self, w: Any) -> None:
        self._worker = w

    def acquire(self, hand_over: Callable[[Any], Any], job: Any) -> None:
        """Call *hand_over* with *job* as soon as a slot is free, and take that slot."""
        self._worker._quick_acquire(hand_over, job)

    def free(self) -> None:
        """Give back the slot of a request that was not handed to the pool."""
        if hasattr(self._worker, "_quick_release"):
            self._worker._quick_release()

    @property
    def waiting(self) -> deque[Any]:
        """What waits for a slot, the oldest first: a function of the worker's, and as its only
        positional argument the request that it hands to the pool.
        """
        waiting: deque[Any] = getattr(self._worker.semaphore, "_waiting", deque())
        return waiting


@relies_on(
    Name(f"{_WORKER}.wait_for_soft_shutdown", used_by="celery.apps.worker:on_cold_shutdown"),
    part=Part.WORKER,
)
def before_soft_shutdown(w: Any, leave: Callable[[], None]) -> None:
    """Call *leave* before a worker sleeps through its soft shutdown.

    Replaces ``wait_for_soft_shutdown`` of this one worker: Celery's signal comes after it.  Checked
    on Celery 5.6.3 and 5.7.0.  Without it a worker counts as stalled during its soft shutdown, and
    what it runs is given to others.
    """
    sleep = w.wait_for_soft_shutdown

    def wait() -> None:
        leave()
        sleep()

    w.wait_for_soft_shutdown = wait

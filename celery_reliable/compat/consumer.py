"""Celery's consumer: what it does with messages and remote commands; its requests, each one
delivery of a message in the worker's main process; and the tracer, through which every execution
goes.
"""

from __future__ import annotations

from collections import ChainMap, deque
from collections.abc import Callable
from typing import Any, TypeAlias

from billiard.einfo import ExceptionInfo
from celery.app import trace as celery_trace
from celery.app.trace import TraceInfo, task_has_custom, trace_ok_t
from celery.worker.consumer.control import Control
from celery.worker.control import Panel
from celery.worker.request import Request, create_request_cls
from kombu.utils.imports import symbol_by_name

from celery_reliable.compat.relied import Name, Part, Used, relies_on

__all__ = [
    "OpenRequest",
    "QueuesHeldBack",
    "Slots",
    "Traced",
    "Tracer",
    "as_traced",
    "before_soft_shutdown",
    "cancel_by",
    "command_by",
    "hand_over_by",
    "handle_by",
    "has_own_hook",
    "request_for",
    "run_as_prefork",
]

_CONSUMER = "celery.worker.consumer.consumer:Consumer"
_HANDLER = f"{_CONSUMER}.create_task_handler"

_REQUEST = "celery.worker.request:Request"


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
    Name(f"{_CONSUMER}.cancel_active_requests", used_by="celery.apps.worker:on_cold_shutdown"),
    part=Part.WORKER,
)
def cancel_by(c: Any, cancel: Callable[[], None]) -> None:
    """Let *cancel* stop the running tasks at a cold shutdown.

    Replaces ``cancel_active_requests`` of this one consumer: it is called from a signal handler,
    and asks nobody.  Checked on Celery 5.6.3 and 5.7.0.  Without it a pool that cannot stop a task
    raises into whatever the main loop does then, and a message may be taken and never begun.
    """
    c.cancel_active_requests = cancel


@relies_on(
    Used("celery.worker.consumer.control:Control", "box"),
    Used("celery.worker.pidbox:Pidbox", "node"),
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


@relies_on(Used("kombu.messaging:Consumer", "_active_tags"), part=Part.WORKER)
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
    Used("kombu.asynchronous.semaphore:LaxBoundedSemaphore", "_waiting"),
    part=Part.WORKER,
)
class Slots:
    """The slots of a worker's pool, of which each request takes one that is handed over.  Only
    workers with an event loop count slots; others hand over all that they take.

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


@relies_on(
    Name(f"{_REQUEST}._context"),
    Name(f"{_REQUEST}._already_revoked", used_by=f"{_REQUEST}._announce_revoked"),
    Name(
        f"{_REQUEST}._announce_revoked",
        takes=("reason", "terminated", "signum", "expired"),
        used_by=f"{_REQUEST}.revoked",
    ),
    Name(f"{_REQUEST}._announce_revoked", used_by=f"{_REQUEST}.terminate"),
    Name(f"{_REQUEST}.on_failure", takes=("exc_info", "send_failed_event", "return_ok")),
    Name(f"{_REQUEST}.on_timeout", takes=("soft", "timeout")),
    Name(f"{_REQUEST}.on_retry", takes=("exc_info",)),
    Name(f"{_REQUEST}.cancel", takes=("pool", "signal", "emit_retry")),
    part=Part.WORKER,
)
class OpenRequest(Request):
    """Celery's request with names that a subclass may use or override: what is done when it is
    revoked.

    Overrides ``Request._announce_revoked``, reads ``_already_revoked`` and ``_context``: the
    signals come after the message was acknowledged, and a request does not report why its process
    was stopped.  Checked on Celery 5.6.3 and 5.7.0.  Without it what is revoked runs again.
    """

    def _announce_revoked(self, reason: str, terminated: bool, signum: Any, expired: bool) -> None:
        self.announce_revoked(reason, terminated, signum, expired)

    def announce_revoked(self, reason: str, terminated: bool, signum: Any, expired: bool) -> None:
        """Store that the task was revoked or has expired, acknowledge its message, and send the
        event.
        """
        super()._announce_revoked(reason, terminated, signum, expired)

    @property
    def is_revoked(self) -> bool:
        """Whether `announce_revoked` was called."""
        return bool(self._already_revoked)

    @is_revoked.setter
    def is_revoked(self, value: bool) -> None:
        self._already_revoked = value

    @property
    def context(self) -> Any:
        """The task's request, as receivers of signals are given it."""
        return self._context


@relies_on(
    Name(
        "celery.worker.request:create_request_cls",
        takes=("base", "task", "pool", "hostname", "eventer"),
        used_by="celery.worker.strategy:default",
    ),
    part=Part.PREFORK,
)
def request_for(
    c: Any, task: Any, message: Any, pid: int | None, started_at: float, *, is_opened: bool = True
) -> Any:
    """Return a request of *message* at consumer *c*, as Celery's strategy makes it, which the
    process *pid* runs since *started_at* (seconds of the epoch).  If it is not *is_opened* the
    request has no arguments.

    Calls ``create_request_cls``, as the strategy does, and sets ``time_start``, as ``on_accepted``
    does.  Checked on Celery 5.6.3 and 5.7.0.  Without it nobody ends the attempt of a process that
    died while it took its own messages.
    """
    made = create_request_cls(
        symbol_by_name(task.Request), task, c.pool, c.hostname, c.event_dispatcher, app=c.app
    )
    request = made(
        message,
        on_ack=message.ack_log_error,
        on_reject=message.reject_log_error,
        app=c.app,
        hostname=c.hostname,
        eventer=c.event_dispatcher,
        task=task,
        connection_errors=c.connection_errors,
        body=message.body if is_opened else ((), {}, {}),
        headers=message.headers,
        decoded=not is_opened,
        utc=True,
    )
    request.worker_pid, request.time_start = pid, started_at
    return request


#: What a tracer returns: result or error, how it ended, its runtime, the result as text.
Traced: TypeAlias = trace_ok_t
Tracer = Callable[..., trace_ok_t]

_TRACE = "celery.app.trace"


@relies_on(
    Name(f"{_TRACE}:TraceInfo.__init__", takes=("state", "retval")),
    *(Name(f"{_TRACE}:trace_ok_t.{one}") for one in ("retval", "info", "runtime", "retstr")),
    part=Part.WORKER,
)
def as_traced(error: Exception, state: str) -> trace_ok_t:
    """Return what Celery's tracer returns when a body raises *error*, in *state*.

    Makes a ``trace_ok_t`` and a ``TraceInfo``, which are in no manual: pools take nothing else for
    the end of a task.  Checked on Celery 5.6.3 and 5.7.0.  Without it a delivery that may not run
    ends its process.
    """
    try:
        raise error
    except Exception as exc:
        return trace_ok_t(ExceptionInfo(internal=True), TraceInfo(state, exc), 0.0, None)


@relies_on(
    Name(f"{_TRACE}:task_has_custom", takes=("task", "attr")),
    Used(by=f"{_TRACE}:build_tracer", name="task_has_custom"),
    part=Part.WORKER,
)
def has_own_hook(task: Any, name: str) -> bool:
    """Whether a task has a hook of the user's, such as ``on_success``, which Celery will call.

    Calls ``task_has_custom``: Celery decides by it, and another judgement could differ.  Checked on
    Celery 5.6.3 and 5.7.0.  Without it an object is freed while a hook of its task works on it.
    """
    return bool(task_has_custom(task, name))


@relies_on(
    Name(f"{_TRACE}:fast_trace_task", takes=("task", "uuid", "request", "body")),
    Used(by="celery.worker.request:Request.execute_using_pool", name="fast_trace_task"),
    part=Part.PREFORK,
)
def run_as_prefork(
    name: str, uuid: str, request: dict[str, Any], body: tuple[Any, Any, Any]
) -> tuple[int, Any, float]:
    """Run a task as the processes of a prefork pool do, and return what they tell the main process:
    whether it did not succeed, its result or error, its runtime.  *body*: arguments, and what is
    embedded in the message.

    Calls ``fast_trace_task``: only it makes the request as Celery does.  Checked on Celery 5.6.3
    and 5.7.0.  Without it no process can run what it has taken by itself.
    """
    outcome: tuple[int, Any, float] = celery_trace.fast_trace_task(
        name, uuid, request, body, None, None
    )
    return outcome

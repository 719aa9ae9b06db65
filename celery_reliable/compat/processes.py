"""The processes of a pool: when one ends, to be replaced, and what it tells the main process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from celery.exceptions import Ignore, Reject, Retry
from celery.utils.serialization import get_pickled_exception
from celery.worker.autoscale import Autoscaler
from kombu.utils.encoding import safe_repr, safe_str

from celery_reliable.compat.relied import Kept, Name, Part, Used, relies_on

__all__ = [
    "ProcessLife",
    "count_also",
    "event_of_end",
    "fields_of_received",
    "has_job",
    "hear_processes",
    "limit_job",
    "pool_of_lives",
    "scale",
]

_SCALER = "celery.worker.autoscale:Autoscaler"


@relies_on(
    Name(f"{_SCALER}.qty", used_by=f"{_SCALER}._maybe_scale"),
    Used(by=f"{_SCALER}.maybe_scale", name="_maybe_scale"),
    Used(by="celery.worker.autoscale:WorkerComponent.create", name="autoscaler"),
    part=Part.PREFORK,
    is_promise=False,
)
def count_also(w: Any, others: Callable[[], int]) -> bool:
    """Let a worker's autoscaler count *others* beside the requests that the main process has; False
    where it is no subclass of Celery's.

    Gives that one autoscaler a class of its own, whose ``qty`` counts more: Celery asks nobody else
    how many processes are wanted.  Checked on Celery 5.6.3 and 5.7.0.  Without it a pool whose
    processes take their own messages does not grow.
    """
    scaler = w.autoscaler
    if not isinstance(scaler, Autoscaler):
        return False
    kind: Any = type(scaler)

    class Counting(kind):
        @property
        def qty(self) -> int:
            return int(super().qty) + others()

    scaler.__class__ = Counting
    return True


@relies_on(
    Name(f"{_SCALER}.maybe_scale", takes=("req",)),
    part=Part.PREFORK,
    is_promise=False,
)
def scale(w: Any, *, has_begun: bool) -> None:
    """Let a worker's autoscaler look how many processes are wanted.  *has_begun*: tasks have begun
    since it did so last, so that it does not end processes yet.

    Calls ``maybe_scale``, and ``on_task_received`` before it, which Celery 5.6 does not have.
    Checked on Celery 5.6.3 and 5.7.0.  Without it a pool grows only as the main process receives a
    task.
    """
    scaler = w.autoscaler
    received = getattr(scaler, "on_task_received", None)
    if has_begun and received is not None:
        received(None)
    scaler.maybe_scale()


_REQUEST = "celery.worker.request:Request"
_STRATEGY = "celery.worker.strategy:default"


@relies_on(
    *(Used(by=_STRATEGY, name=name) for name in ("argsrepr", "kwargsrepr", "root_id", "parent_id")),
    Used(by=f"{_REQUEST}.__init__", name="_argsrepr"),
    part=Part.PREFORK,
    is_promise=False,
)
def fields_of_received(name: str, headers: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``task-received`` tells of a task without ETA and expiry, by its message's
    headers.

    Does what Celery's strategy does, which has no function for it.  Checked on Celery 5.6.3 and
    5.7.0.  Without it monitors do not know the arguments of what processes take by themselves.
    """
    return {
        "uuid": headers["id"],
        "name": headers.get("shadow") or name,
        "args": headers.get("argsrepr", ""),
        "kwargs": headers.get("kwargsrepr", ""),
        "root_id": headers.get("root_id"),
        "parent_id": headers.get("parent_id"),
        "retries": headers.get("retries", 0),
        "eta": None,
        "expires": None,
    }


@relies_on(
    Name(f"{_REQUEST}.on_success", takes=("failed__retval__runtime",)),
    Name(f"{_REQUEST}.on_retry", takes=("exc_info",)),
    Kept("billiard.einfo:ExceptionWithTraceback.exc"),
    Name("celery.utils.serialization:get_pickled_exception", takes=("exc",)),
    part=Part.PREFORK,
    is_promise=False,
)
def event_of_end(outcome: tuple[int, Any, float]) -> tuple[str, dict[str, Any]] | None:
    """Return kind and fields of the event that tells of the end of a task, by what `run_as_prefork`
    has returned; None where Celery sends none.

    Does what Celery's request does in the main process, which has no function for it.  Checked on
    Celery 5.6.3 and 5.7.0.  Without it monitors hold for running what has ended.
    """
    has_failed, value, runtime = outcome
    if not has_failed:
        return "task-succeeded", {"result": value, "runtime": runtime}
    # billiard unwraps it on the way to the main process.
    error = getattr(value.exception, "exc", value.exception)
    if isinstance(error, Ignore | Reject):
        return None
    if isinstance(error, Retry):
        told, kind = safe_repr(error.exc), "task-retried"
        return kind, {"exception": told, "traceback": safe_str(value.traceback)}
    told, kind = safe_repr(get_pickled_exception(error)), "task-failed"
    return kind, {"exception": told, "traceback": value.traceback}


_WORKER = "billiard.pool:Worker"
_ASYNC = "celery.concurrency.asynpool:AsynPool"
_RESULTS = "celery.concurrency.asynpool:ResultHandler"

#: What marks that which a process tells, beside billiard's own numbers.
_TOLD = "celery_reliable"
#: Where a job has the process to which it is, or was, written.
_HANDED = ("_write_to", "_scheduled_for")


class ProcessLife:
    """How many tasks one process has begun, and may begin, and its way to the main process.  A job
    that is no shift counts as one task.
    """

    def __init__(self) -> None:
        self.begun = 0
        #: It begins no more than so many; None: any number.
        self.most: int | None = None
        #: Takes something to the main process, in the order of the calls.  Waits while that hears
        #: nothing.
        self.tell: Callable[[Any], None] = _unheard

    @property
    def is_over(self) -> bool:
        """Whether the process is to be replaced."""
        return self.most is not None and self.begun >= self.most


def _unheard(told: Any) -> None:
    """Tell nobody: this is no process of a pool."""


@relies_on(
    Name(f"{_WORKER}._make_protected_receive", takes=("conn",)),
    Used(by=f"{_WORKER}._make_child_methods", name="_make_protected_receive"),
    Used(by=f"{_WORKER}.__call__", name="_make_child_methods"),
    Kept(f"{_WORKER}.inq"),
    Kept(f"{_WORKER}.maxtasks"),
    Kept(f"{_WORKER}.outq"),
    Name("billiard.queues:_SimpleQueue.put", takes=("obj",)),
    Used(by=f"{_WORKER}.workloop", name="wait_for_job"),
    Used(by=f"{_WORKER}.workloop", name="maxtasks"),
    Name("billiard.pool:EX_RECYCLE"),
    Name(f"{_ASYNC}.Worker"),
    Used(by="billiard.pool:Pool._create_worker_process", name="Worker"),
    Used(by="celery.concurrency.prefork:TaskPool.on_start", name="Pool"),
    Name("billiard.pool:Pool._worker_active", takes=("worker",)),
    Used(by="billiard.pool:Pool.shrink", name="_iterinactive"),
    Used(by="billiard.pool:Pool._iterinactive", name="_worker_active"),
    Kept("billiard.pool:Pool._cache"),
    Used(by=f"{_ASYNC}.on_job_process_down", name="_write_to"),
    Used(by=f"{_ASYNC}.on_job_process_down", name="_scheduled_for"),
    part=Part.PREFORK,
)
def pool_of_lives(life: ProcessLife) -> Any:
    """Return Celery's pool of processes as a class, of which each process asks its *life* before it
    waits for a job whether it is to be replaced, and tells the main process something by it.

    Billiard counts jobs, and in a job a process may run many tasks.  What a process tells comes by
    the pipe of its results, and so in its order with these, and after its death too.  A pool that
    shrinks ends no process that was just handed a job.

    Overrides ``Worker._make_protected_receive``, which makes the function that waits for a job,
    takes ``maxtasks`` away from billiard, and writes to ``outq``; overrides
    ``Pool._worker_active``, which knows only the jobs that a process has accepted.  Checked on
    Celery 5.6.3 and 5.7.0 with billiard 4.3.2.  Without it a process runs more tasks than
    ``--max-tasks-per-child`` says.
    """
    from billiard.pool import EX_RECYCLE
    from celery.concurrency.asynpool import AsynPool

    class Worker(AsynPool.Worker):
        maxtasks: int | None

        def _make_protected_receive(self, conn: Any) -> Callable[[], Any]:
            receive: Callable[[], Any] = super()._make_protected_receive(conn)
            if conn is not self.inq:
                return receive
            life.tell = lambda told: self.outq.put((_TOLD, (told,)))
            life.begun, life.most = 0, self.maxtasks
            self.maxtasks = None
            if life.most is None:
                return receive

            def receive_or_end() -> Any:
                if life.is_over:
                    # billiard has its own function in this place, which keeps the code.
                    sys.exit(EX_RECYCLE)
                request = receive()
                if request:
                    life.begun += 1
                return request

            return receive_or_end

    class Pool(AsynPool):
        def _worker_active(self, worker: Any) -> bool:
            jobs = list(self._cache.values())
            handed = [getattr(job, name, None) for job in jobs for name in _HANDED]
            return any(one is worker for one in handed) or bool(super()._worker_active(worker))

    Pool.Worker = Worker
    return Pool


@relies_on(
    Kept("billiard.pool:Pool._result_handler"),
    Kept("billiard.pool:ResultHandler.state_handlers"),
    Used(by=f"{_RESULTS}.__init__", name="state_handlers"),
    part=Part.PREFORK,
)
def hear_processes(processes: Any, hear: Callable[[Any], None]) -> None:
    """Call *hear* in the main process with what a process of `pool_of_lives` tells.

    Adds to ``state_handlers`` of the pool's ``ResultHandler``, as Celery does for its own message
    of that kind.  Checked on Celery 5.6.3 and 5.7.0 with billiard 4.3.2.  Without it nobody sends
    events of the tasks that processes take by themselves.
    """
    processes._result_handler.state_handlers[_TOLD] = hear


@relies_on(
    Kept("billiard.pool:Pool._cache"), Kept("billiard.pool:ApplyResult._job"), part=Part.PREFORK
)
def has_job(processes: Any, job: Any) -> bool:
    """Whether billiard's pool has a job that has not ended.

    Reads ``Pool._cache``, and the number of a job in it: when the worker loses its connection, the
    pool drops what it has not handed to a process, and tells nobody.  Checked on billiard 4.3.2.
    Without it a process counts as busy for ever.
    """
    return job._job in processes._cache


@relies_on(
    Kept("billiard.pool:ApplyResult._timeout"),
    Kept("billiard.pool:ApplyResult._soft_timeout"),
    Kept("billiard.pool:ApplyResult._time_accepted"),
    Used(by="billiard.pool:TimeoutHandler.handle_timeouts", name="_time_accepted"),
    part=Part.PREFORK,
)
def limit_job(
    job: Any, soft: float | None = None, hard: float | None = None, since: float | None = None
) -> None:
    """Let a job of a pool of processes have these limits, *since* then by the monotonic clock, and
    not those of the pool; without arguments none.

    Sets three attributes of billiard's ``ApplyResult``, which it reads when a process has accepted
    the job, and over and over while the pool is stopped.  Checked on billiard 4.3.2.  Without it a
    process that runs many short tasks is stopped as one that runs one for too long.
    """
    job._soft_timeout, job._timeout = soft, hard
    job._time_accepted = since

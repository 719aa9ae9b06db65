"""Celery's pools, and billiard's below them: their jobs and their processes; when a process ends,
to be replaced, and what processes tell the main process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from celery_reliable.compat.relied import Name, Part, Used, relies_on

__all__ = [
    "ProcessLife",
    "billiards",
    "has_job",
    "hear_processes",
    "keep_begun_jobs",
    "limit_job",
    "n_greenlets_free",
    "n_processes_up",
    "pool_of_lives",
    "process_ids_of",
    "scale_by",
    "task_ids_of",
    "write_now",
]

_BILLIARD = "billiard.pool:Pool"
_ASYNC = "celery.concurrency.asynpool:AsynPool"
_TASK_POOL = "celery.concurrency.prefork:TaskPool"

_WORKER = "billiard.pool:Worker"
_RESULTS = "celery.concurrency.asynpool:ResultHandler"

#: What marks that which a process tells, beside billiard's own numbers.
_TOLD = "celery_reliable"


@relies_on(Used(_TASK_POOL, "_pool"), part=Part.PREFORK)
def billiards(pool: Any) -> Any:
    """Return billiard's pool behind a started pool of processes; None for other pools.

    Reads ``TaskPool._pool``: Celery's own pool hands on only some of its methods.  Checked on
    Celery 5.6.3 and 5.7.0.  Without it nothing can be known of a pool's processes, nor of their
    jobs.
    """
    from celery.concurrency.prefork import TaskPool

    return pool._pool if isinstance(pool, TaskPool) else None


@relies_on(
    Used(_BILLIARD, "_cache"),
    Used("billiard.pool:ApplyResult", "correlation_id"),
    part=Part.PREFORK,
)
def _jobs_of(pool: Any) -> list[Any]:
    """Return the jobs that a pool of processes was handed and has not ended; none for other pools.

    Reads ``Pool._cache``: billiard tells nobody which it has, and Celery forgets its requests when
    it loses its connection.  What no process was handed, the pool drops then, and tells nobody
    either.  Checked on billiard 4.3.2.  Without it a live attempt is taken for lost once the
    connection was, and runs twice at once.
    """
    processes = billiards(pool)
    return list(processes._cache.values()) if processes is not None else []


def task_ids_of(pool: Any) -> set[str]:
    """Return the ids of the tasks of these jobs."""
    # Jobs of other kinds, such as maps, have no such attribute.
    return {getattr(job, "correlation_id", "") for job in _jobs_of(pool)}


def has_job(pool: Any, job: Any) -> bool:
    """Whether a job is one of these."""
    return job in _jobs_of(pool)


@relies_on(Used(_BILLIARD, "_pool"), part=Part.PREFORK)
def process_ids_of(pool: Any) -> list[int]:
    """Return the ids of the processes of a pool; none for other pools.

    Reads ``Pool._pool``: Celery tells them only while a pool runs, and not in its stop.  Checked on
    billiard 4.3.2.  Without it a cold stop does not end while a process is stopped or ignores
    SIGTERM, and the tasks of its neighbours begin nowhere else.
    """
    processes = billiards(pool)
    return [one.pid for one in list(processes._pool) if one.pid] if processes is not None else []


@relies_on(Used(_ASYNC, "_fileno_to_inq"), part=Part.PREFORK)
def n_processes_up(pool: Any) -> int | None:
    """Return how many processes of a pool are up and take jobs; None for a pool in which none has
    to come up.

    Reads ``AsynPool._fileno_to_inq``: Celery tells only how many there are to be.  Checked on
    Celery 5.6.3 and 5.7.0.  Without it tasks are claimed for processes that are not there yet,
    while idle workers could run them.
    """
    from celery.concurrency.asynpool import AsynPool

    processes = billiards(pool)
    return len(processes._fileno_to_inq) if isinstance(processes, AsynPool) else None


@relies_on(Used("celery.concurrency.gevent:TaskPool", "_pool"), part=Part.GEVENT)
def n_greenlets_free(pool: Any) -> int:
    """Wait until a pool of greenlets could begin something, and return how many of them are free.

    Reads ``TaskPool._pool``, gevent's own: the worker's consumer is a greenlet too, and nobody
    calls it when another ends.  Checked on Celery 5.6.3 and 5.7.0.  Without it the consumer waits
    with a message that it has taken, and no other worker can begin that.
    """
    pool._pool.wait_available()
    return int(pool._pool.free_count())


@relies_on(
    Name("celery.worker.autoscale:Autoscaler.qty"),
    Used(by="celery.worker.autoscale:Autoscaler._maybe_scale", name="qty"),
    part=Part.PREFORK,
)
def scale_by(autoscaler: Any, n_wanted: Callable[[], int]) -> None:
    """Let a worker's autoscaler go by how many processes are wanted.

    Replaces ``Autoscaler.qty`` of this one autoscaler, which counts what the main process has
    received.  Checked on Celery 5.6.3 and 5.7.0.  Without it no pool grows whose processes take
    their own messages.
    """
    own = type(autoscaler)
    autoscaler.__class__ = type(own.__name__, (own,), {"qty": property(lambda self: n_wanted())})


@relies_on(
    Name(
        f"{_ASYNC}.on_partial_read",
        takes=("job", "proc"),
        used_by=f"{_ASYNC}.on_job_process_down",
    ),
    Name(f"{_ASYNC}.process_flush_queues", takes=("proc",)),
    Name(f"{_ASYNC}.flush", used_by=f"{_TASK_POOL}.on_start"),
    Used(by=f"{_ASYNC}.flush", name="_accepted"),
    Used(by=f"{_ASYNC}.flush", name="_busy_workers"),
    Used(by=f"{_ASYNC}._create_process_handlers", name="inqW_fd"),
    Used(by=f"{_ASYNC}.on_job_process_down", name="_write_to"),
    Used("billiard.pool:ApplyResult", "_worker_pid"),
    part=Part.PREFORK,
)
def keep_begun_jobs(pool: Any) -> None:
    """Let a started pool of processes take no job for unbegun that a process has, or had when it
    died.  Other pools are left alone.

    A process says that it begins a task, and then begins.  Billiard reads what dead processes said
    when it clears up after them; but when one dies while it does so for another, it takes the task
    for one that was never begun, and hands it to the next process.  So what the process had sent is
    read first.

    And when the worker has lost its connection, Celery drops the jobs of which no process has said
    yet that it begins, and takes each process for idle.  But it has the job, and runs it.  So
    these jobs pass for accepted meanwhile, and their processes for busy after it.

    Replaces ``AsynPool.on_partial_read`` and ``flush`` of this one pool: Celery calls nobody else
    at these moments.  Checked on Celery 5.6.3 and 5.7.0 with billiard 4.3.2.  Without it a task
    whose process dies beside another's runs again with no loss counted, and a live attempt is taken
    for lost if the connection was lost just as it began, and runs twice at once.
    """
    from celery.concurrency.asynpool import AsynPool

    processes = billiards(pool)
    if not isinstance(processes, AsynPool):
        return
    give_to_another, flush = processes.on_partial_read, processes.flush

    def on_partial_read(job: Any, process: Any) -> None:
        processes.process_flush_queues(process)
        give_to_another(job, process)

    def keeping() -> None:
        # Jobs of other kinds, such as maps, have no such attribute.
        handed = [
            job
            for job in _jobs_of(pool)
            if not job._accepted and getattr(job, "_write_to", None) is not None
        ]
        for job in handed:
            job._accepted = True
        try:
            flush()
        finally:
            for job in handed:
                job._accepted = job._worker_pid is not None
            # Celery forgets which processes are busy, and writes the next job to one of them.
            at_work = [getattr(job, "_write_to", None) for job in _jobs_of(pool)]
            processes._busy_workers.update(one.inqW_fd for one in at_work if one is not None)

    processes.on_partial_read = on_partial_read
    processes.flush = pool.flush = keeping


@relies_on(
    Used(_ASYNC, "outbound_buffer"),
    Used(_ASYNC, "_all_inqueues"),
    Used(_ASYNC, "_busy_workers"),
    Used(_ASYNC, "_active_writes"),
    Used(by=f"{_ASYNC}._create_write_handlers", name="consolidate_callback"),
    Used(by="kombu.asynchronous.hub:Hub.create_loop", name="consolidate_callback"),
    part=Part.PREFORK,
    is_promise=False,
)
def write_now(pool: Any, hub: Any) -> None:
    """Let a pool of processes write to idle ones what it was handed.  Other pools are left alone.

    Celery writes at the end of a turn of the main loop: when it has asked the broker for more, and
    has read what there is to read.  Each of these may be a round trip.  And where the pool is
    called before the transport in that turn, it does not see what the transport then delivers: the
    loop waits, for its next timer if for nothing else.

    Not to be called while the end of a task is worked off: until that is done a cold stop kills the
    process for it, and with it the next task.

    Calls ``Hub.consolidate_callback``, as the loop does, with the pipes of the processes that the
    pool takes for idle.  Checked on Celery 5.6.3 and 5.7.0 with kombu 5.7.  Without it an idle
    process stands beside a task that was taken for it, for half a second at the worst.
    """
    from celery.concurrency.asynpool import AsynPool

    processes = billiards(pool)
    # Nobody writes before the loop's first turn.
    if (
        not isinstance(processes, AsynPool)
        or not processes.outbound_buffer
        or hub.consolidate_callback is None
    ):
        return
    idle = processes._all_inqueues - processes._busy_workers - processes._active_writes
    if idle:
        hub.consolidate_callback(list(idle))


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
        self.tell: Callable[[Any], None] = lambda told: None

    @property
    def is_over(self) -> bool:
        """Whether the process is to be replaced."""
        return self.most is not None and self.begun >= self.most


@relies_on(
    Name(f"{_WORKER}._make_protected_receive", takes=("conn",)),
    Used(by=f"{_WORKER}._make_child_methods", name="_make_protected_receive"),
    Used(by=f"{_WORKER}.__call__", name="_make_child_methods"),
    Used(_WORKER, "inq"),
    Used(_WORKER, "maxtasks"),
    Used(_WORKER, "outq"),
    Used(by=f"{_WORKER}.workloop", name="wait_for_job"),
    Used(by=f"{_WORKER}.workloop", name="maxtasks"),
    Used(by="billiard.pool:Pool._create_worker_process", name="Worker"),
    Used(by="celery.concurrency.prefork:TaskPool.on_start", name="Pool"),
    part=Part.PREFORK,
)
def pool_of_lives(life: ProcessLife) -> Any:
    """Return Celery's pool of processes as a class, of which each process asks its *life* before it
    waits for a job whether it is to be replaced, and tells the main process something by it.

    Billiard counts jobs, and in a job a process may run many tasks.  What a process tells comes by
    the pipe of its results, and so in its order with these, and after its death too.

    Overrides ``Worker._make_protected_receive``, which makes the function that waits for a job,
    takes ``maxtasks`` away from billiard, and writes to ``outq``.  Checked on Celery 5.6.3 and
    5.7.0 with billiard 4.3.2.  Without it a process runs more tasks than ``--max-tasks-per-child``
    says.
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

    return type("Pool", (AsynPool,), {"Worker": Worker})


@relies_on(
    Used("billiard.pool:Pool", "_result_handler"),
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
    Used("billiard.pool:ApplyResult", "_timeout"),
    Used("billiard.pool:ApplyResult", "_soft_timeout"),
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

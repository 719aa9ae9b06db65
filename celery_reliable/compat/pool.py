"""Celery's pools, and billiard's below them: their jobs, and the messages of their processes."""

from __future__ import annotations

from typing import Any

from celery_reliable.compat.relied import Kept, Name, Part, Used, relies_on

__all__ = [
    "billiards",
    "futures_of",
    "has_job",
    "jobs_of",
    "keep_begun_jobs",
    "n_processes_up",
    "process_ids_of",
    "task_ids_of",
    "write_now",
]

_BILLIARD = "billiard.pool:Pool"
_ASYNC = "celery.concurrency.asynpool:AsynPool"
_TASK_POOL = "celery.concurrency.prefork:TaskPool"
_THREADS = "celery.concurrency.thread:TaskPool"


@relies_on(Kept(f"{_TASK_POOL}._pool"), part=Part.PREFORK)
def billiards(pool: Any) -> Any:
    """Return billiard's pool behind a started pool of processes; None for other pools.

    Reads ``TaskPool._pool``: Celery's own pool hands on only some of its methods.  Checked on
    Celery 5.6.3 and 5.7.0.  Without it nothing can be known of a pool's processes, nor of their
    jobs.
    """
    from celery.concurrency.prefork import TaskPool

    return pool._pool if isinstance(pool, TaskPool) else None


@relies_on(
    Kept(f"{_BILLIARD}._cache"),
    Kept("billiard.pool:ApplyResult.correlation_id"),
    part=Part.PREFORK,
)
def jobs_of(pool: Any) -> list[Any]:
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
    return {getattr(job, "correlation_id", "") for job in jobs_of(pool)}


def has_job(pool: Any, job: Any) -> bool:
    """Whether a job is one of these."""
    return job in jobs_of(pool)


@relies_on(Kept(f"{_BILLIARD}._pool"), part=Part.PREFORK)
def process_ids_of(pool: Any) -> list[int]:
    """Return the ids of the processes of a pool; none for other pools.

    Reads ``Pool._pool``: Celery tells them only while a pool runs, and not in its stop.  Checked on
    billiard 4.3.2.  Without it a cold stop does not end while a process is stopped or ignores
    SIGTERM, and the tasks of its neighbours begin nowhere else.
    """
    processes = billiards(pool)
    return [one.pid for one in list(processes._pool) if one.pid] if processes is not None else []


@relies_on(Kept(f"{_ASYNC}._fileno_to_inq"), part=Part.PREFORK)
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


@relies_on(
    Name(
        f"{_ASYNC}.on_partial_read",
        takes=("job", "proc"),
        used_by=f"{_ASYNC}.on_job_process_down",
    ),
    Name(f"{_ASYNC}.process_flush_queues", takes=("proc",)),
    Name(f"{_ASYNC}.flush", used_by=f"{_TASK_POOL}.on_start"),
    Used(by=f"{_ASYNC}.flush", name="_accepted"),
    Used(by=f"{_ASYNC}.on_job_process_down", name="_write_to"),
    Kept("billiard.pool:ApplyResult._worker_pid"),
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
    yet that it begins, and takes such a process for idle.  But it has the job, and runs it.  So
    these jobs pass for accepted meanwhile.

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
            for job in jobs_of(pool)
            if not job._accepted and getattr(job, "_write_to", None) is not None
        ]
        for job in handed:
            job._accepted = True
        try:
            flush()
        finally:
            for job in handed:
                job._accepted = job._worker_pid is not None

    processes.on_partial_read = on_partial_read
    processes.flush = pool.flush = keeping


@relies_on(
    Name(f"{_THREADS}.on_apply", used_by="celery.concurrency.base:BasePool.apply_async"),
    Kept("celery.concurrency.thread:ApplyResult.f"),
    Used(by="celery.worker.request:Request.execute_using_pool", name="on_accepted"),
    part=Part.WORKER,
    # Workers with other pools would be refused as well.
    is_promise=False,
)
def futures_of(pool: Any) -> list[tuple[Any, Any]]:
    """Return a list to which a pool of threads adds what it is handed from now on: the request, and
    the future of its execution.  Whoever reads it removes what he has no use for.  It stays empty
    for other pools.

    Replaces ``TaskPool.on_apply`` of this one pool, and reads ``f`` of what that returns: the pool
    lets all that comes wait, and forgets which request a future is of.  Checked on Celery 5.6.3
    and 5.7.0.  Without it what waits behind busy threads stays there.
    """
    handed: list[tuple[Any, Any]] = []
    # An import would load threads' pool everywhere.
    if all(one.__module__ != "celery.concurrency.thread" for one in type(pool).__mro__):
        return handed
    apply = pool.on_apply

    def on_apply(*args: Any, **options: Any) -> Any:
        result = apply(*args, **options)
        request = getattr(options.get("accept_callback"), "__self__", None)
        if request is not None:
            handed.append((request, result.f))
        return result

    pool.on_apply = on_apply
    return handed


@relies_on(
    Kept(f"{_ASYNC}.outbound_buffer"),
    Kept(f"{_ASYNC}._all_inqueues"),
    Kept(f"{_ASYNC}._busy_workers"),
    Kept(f"{_ASYNC}._active_writes"),
    Used(by=f"{_ASYNC}._create_write_handlers", name="consolidate_callback"),
    Used(by="kombu.asynchronous.hub:Hub.create_loop", name="consolidate_callback"),
    part=Part.PREFORK,
    is_promise=False,
)
def write_now(pool: Any, hub: Any) -> bool:
    """Let a pool of processes write to idle ones what it was handed; True when there was something.
    Other pools are left alone.

    Celery writes at the end of a turn of the main loop: when it has asked the broker for more, and
    has read what there is to read.  Each of these may be a round trip.  And where the pool is
    called before the transport in that turn, it does not see what the transport then delivers: the
    loop waits, for its next timer if for nothing else.

    Not to be called while the end of a task is worked off: until that is done a cold stop kills the
    process for it, and with it the next task.

    Calls ``Hub.consolidate_callback``, as the loop does, with the pipes of the processes that the
    pool takes for idle.  Checked on Celery 5.6.3 and 5.7.0 with kombu 5.7.  Without it an idle
    process stands beside a task that was fetched for it, for half a second at the worst.
    """
    from celery.concurrency.asynpool import AsynPool

    processes = billiards(pool)
    # Nobody writes before the loop's first turn.
    if (
        not isinstance(processes, AsynPool)
        or not processes.outbound_buffer
        or hub.consolidate_callback is None
    ):
        return False
    idle = processes._all_inqueues - processes._busy_workers - processes._active_writes
    if idle:
        hub.consolidate_callback(list(idle))
    return bool(idle)

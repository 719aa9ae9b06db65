"""The processes of a pool: when one ends, to be replaced, and what it tells the main process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from celery_reliable.compat.relied import Kept, Name, Part, Used, relies_on

__all__ = [
    "ProcessLife",
    "hear_processes",
    "limit_job",
    "pool_of_lives",
]

_WORKER = "billiard.pool:Worker"
_RESULTS = "celery.concurrency.asynpool:ResultHandler"

#: What marks that which a process tells, beside billiard's own numbers.
_TOLD = "celery_reliable"


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
    Kept(f"{_WORKER}.inq"),
    Kept(f"{_WORKER}.maxtasks"),
    Kept(f"{_WORKER}.outq"),
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
    Kept("billiard.pool:Pool._result_handler"),
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
    Kept("billiard.pool:ApplyResult._timeout"),
    Kept("billiard.pool:ApplyResult._soft_timeout"),
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

"""The processes of a pool: when one ends, to be replaced."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Protocol

from celery_reliable.compat.relied import Kept, Name, Part, Used, relies_on

__all__ = ["limit_job", "pool_of_lives"]

_WORKER = "billiard.pool:Worker"
_ASYNC = "celery.concurrency.asynpool:AsynPool"


class Life(Protocol):
    """How much a process has done, and may do."""

    def begin(self, most: int | None) -> None:
        """It runs so many tasks at most; None: any number."""

    def has_job(self) -> None:
        """It has been handed a job."""

    @property
    def is_over(self) -> bool:
        """Whether it is to be replaced."""


@relies_on(
    Name(f"{_WORKER}._make_protected_receive", takes=("conn",)),
    Used(by=f"{_WORKER}._make_child_methods", name="_make_protected_receive"),
    Used(by=f"{_WORKER}.__call__", name="_make_child_methods"),
    Kept(f"{_WORKER}.inq"),
    Kept(f"{_WORKER}.maxtasks"),
    Used(by=f"{_WORKER}.workloop", name="wait_for_job"),
    Used(by=f"{_WORKER}.workloop", name="maxtasks"),
    Name("billiard.pool:EX_RECYCLE"),
    Name(f"{_ASYNC}.Worker"),
    Used(by="billiard.pool:Pool._create_worker_process", name="Worker"),
    Used(by="celery.concurrency.prefork:TaskPool.on_start", name="Pool"),
    part=Part.PREFORK,
)
def pool_of_lives(life: Life) -> Any:
    """Return Celery's pool of processes as a class, of which each process asks its *life* before it
    waits for a job whether it is to be replaced.

    Billiard counts jobs, and in a job a process may run many tasks.

    Overrides ``Worker._make_protected_receive``, which makes the function that waits for a job, and
    takes ``maxtasks`` away from billiard.  Checked on Celery 5.6.3 and 5.7.0 with billiard 4.3.2.
    Without it a process runs more tasks than ``--max-tasks-per-child`` says.
    """
    from billiard.pool import EX_RECYCLE
    from celery.concurrency.asynpool import AsynPool

    class Worker(AsynPool.Worker):
        maxtasks: int | None

        def _make_protected_receive(self, conn: Any) -> Callable[[], Any]:
            receive: Callable[[], Any] = super()._make_protected_receive(conn)
            if conn is not self.inq:
                return receive
            most, self.maxtasks = self.maxtasks, None
            life.begin(most)
            if most is None:
                return receive

            def receive_or_end() -> Any:
                if life.is_over:
                    # billiard has its own function in this place, which keeps the code.
                    sys.exit(EX_RECYCLE)
                request = receive()
                if request:
                    life.has_job()
                return request

            return receive_or_end

    class Pool(AsynPool):
        pass

    Pool.Worker = Worker
    return Pool


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

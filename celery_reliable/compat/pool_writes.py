"""When a pool of processes writes to them what it was handed."""

from __future__ import annotations

from typing import Any

from celery_reliable.compat.pool import billiards
from celery_reliable.compat.relied import Kept, Part, Used, relies_on

__all__ = ["write_now"]

_ASYNC = "celery.concurrency.asynpool:AsynPool"


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

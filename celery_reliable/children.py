"""What a pool's process said before it died, heard before its task is given to another.

A process says that it begins a task, and then begins.  Billiard reads what dead processes said when
it clears up after them; but when one dies while it does so for another, it takes the task for one
that was never begun, and hands it to the next process: it runs again, and no loss is counted, and
what else the dead process had said is never read.
"""

from __future__ import annotations

from typing import Any

__all__ = ["hear_the_dead"]


def hear_the_dead(pool: Any) -> None:
    """Let a started pool of processes look whether a task was begun before it hands it out anew.

    Other pools are left alone.
    """
    processes: Any = getattr(pool, "_pool", None)
    if not hasattr(processes, "on_partial_read"):
        return
    give_to_another = processes.on_partial_read

    def on_partial_read(job: Any, process: Any) -> None:
        if not process.dead:
            processes.process_flush_queues(process)
        give_to_another(job, process)

    processes.on_partial_read = on_partial_read

"""The options of a task: what each one means, and its default."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["TaskOptions"]


class TaskOptions:
    """The options that a reliable task has beside Celery's own.  `definition` checks them."""

    #: The name of the argument that names the object, or a callable that gets all the arguments,
    #: defaults too (by position or by name, as it takes them), and returns an int, a str, a UUID,
    #: bytes, or a tuple of these. One whose first parameter is ``self`` gets the task before them.
    #: None: no object.
    object_id: str | Callable[..., Any] | None = None
    #: What a task does when another task holds its object: ``"skip"`` (do nothing), ``"retry"``
    #: (run later; max_retries does not count it), ``"fail"`` (raise ObjectBusy) or ``"wait"``
    #: (stand in line in the ledger, in the order of publication, until there is a place).
    on_conflict: str = "skip"
    #: How many tasks may have the object at a time, 100 at most; without an `object_id`, how many
    #: tasks of this name run at a time in the whole fleet. With it say `on_conflict`. None: one
    #: task has an object, and tasks without an object are not limited. A call may say another.
    at_most: int | None = None
    #: With ``on_conflict="wait"``, since when a task has its place: ``"running"`` (each attempt
    #: takes it when it begins) or ``"queued"`` (taken by the publication: what finds no place
    #: stands in line, and is in no queue). It is free when the task has ended.
    place: str = "running"
    #: Since when a task holds its object: ``"running"`` (each attempt takes it when it begins) or
    #: ``"queued"`` (taken by the publication; see `apply_async`). It is free when the task has
    #: ended.
    unique: str = "running"
    #: Seconds for which the object stays held after a success; None: not at all.
    once_for_seconds: float | None = None
    #: Seconds that an attempt may run without a `touch` before it counts as stuck, is lost, and
    #: the task runs again; None: no limit.
    time_to_run_seconds: float | None = None
    #: How many losses the task may have; with one more it is dead-lettered. None: the setting
    #: `MAX_LOSSES`. 0: for a task that must not run again when its process dies.
    max_losses: int | None = None
    #: How often attempts may begin in the whole fleet, as Celery writes it: ``"100/m"`` (``/s``,
    #: ``/m``, ``/h``). They are spread evenly; what comes too early waits in the ledger for its
    #: moment. ``"100/m per object"``: each object of `object_id` has that rate for itself. None: no
    #: limit. (Celery's own ``rate_limit`` is one of each worker.)
    rate: str | None = None
    #: Whether a task that failed for good is kept as a dead letter: True (but not by an error that
    #: Celery's own ``throws`` names as expected), ``"always"`` (by such an error too) or False.
    dead_letter: bool | str = True
    #: Names of the workers that may run the task, as patterns: ``("gpu-*", "alpha@host")``. One
    #: without an ``@`` is about what stands before it in a worker's name. None: any worker.
    only_workers: str | Sequence[str] | None = None
    #: Names of the workers that get the task first, as patterns, the most preferred first. While
    #: none of these is alive, the task goes to its usual queue. None: no worker is preferred.
    prefer_workers: str | Sequence[str] | None = None

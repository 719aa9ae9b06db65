"""The project's app in a worker that is hit at the worst moment, when a test says so."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

import redis
from celery import bootsteps
from celery.signals import before_task_publish, worker_process_init

from celery_reliable.broker.worker_unacked import Taking
from celery_reliable.compat.kombu import OpenChannel
from celery_reliable.signals import pass_finished
from tests.support.waiting import wait_for

__all__ = ["BEHIND", "FILL", "HANG", "INTERRUPT", "KILL_BOTH", "KILL_WHILE_LOCKED", "QUIT"]

#: The keys by which a test says so; their values are process ids where one is to be killed, the
#: name of a task where it is the moment when that is published, and an id where it is when that
#: ends.
BEHIND = "moment:behind"
FILL = "moment:fill"
HANG = "moment:hang"
INTERRUPT = "moment:interrupt"
KILL_BOTH = "moment:kill_both"
KILL_WHILE_LOCKED = "moment:kill_while_locked"
QUIT = "moment:quit"

#: For so long a take waits in vain for another task to begin.
BEHIND_SECONDS = 5
#: Less than a fork waits for the thread of the passes.
LOCKED_SECONDS = 1.2


class Interrupted(Exception):
    """What comes between."""


def kill(pid: int) -> None:
    """Kill a process of the pool, which nobody has waited for then."""
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: _is_over(pid), 5, f"the end of {pid}")


def _is_over(pid: int) -> bool:
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
        return stat.read().rpartition(")")[2].split()[0] == "Z"


def taken(app: Any, key: str) -> int | None:
    """What a test has put there, once."""
    value = app.effects.client.getdel(key)
    return None if value is None else int(value)


def kill_while_locked(app: Any) -> Callable[..., None]:
    """Return a receiver that kills a process while it has one of the result backend's locks."""

    def receive(**_: Any) -> None:
        pid = taken(app, KILL_WHILE_LOCKED)
        if pid is None:
            return
        classes = type(app.backend).__mro__
        prop: Any = next(vars(one)["client"] for one in classes if "client" in vars(one))
        with prop.lock:
            os.kill(pid, signal.SIGKILL)
            try:
                wait_for(lambda: _is_replaced(pid), LOCKED_SECONDS, "another process")
            except AssertionError:
                return

    return receive


def _is_replaced(pid: int) -> bool:
    with open(f"/proc/{os.getpid()}/task/{os.getpid()}/children", encoding="ascii") as children:
        others = {int(one) for one in children.read().split()} - {pid}
    return bool(others)


class KillBoth(bootsteps.StartStopStep):
    """Kills a process that has just begun a task, while the pool clears up after another."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def start(self, c: Any) -> None:
        """Stand behind what writes to the pool's processes."""
        processes = c.pool._pool
        register = processes.register_with_event_loop

        def register_and_kill(hub: Any) -> None:
            register(hub)
            hub.consolidate_callback = partial(write_and_kill, hub.consolidate_callback)

        def write_and_kill(write: Callable[[Iterable[int]], None], fds: Iterable[int]) -> None:
            write(fds)
            job = next((j for j in processes._cache.values() if not j._accepted), None)
            if job is None or job._write_to is None:
                return
            other = taken(c.app, KILL_BOTH)
            if other is not None:
                self.kill_both(c.app, processes, job, other)

        processes.register_with_event_loop = register_and_kill

    def kill_both(self, app: Any, processes: Any, job: Any, other: int) -> None:
        """Kill *other*, and when that is cleared up, the process of *job*, which has begun."""
        wait_for(lambda: app.effects.runs(job.correlation_id), 10, "the task's begin")
        flush, begun = processes.process_flush_queues, [job._write_to.pid]

        def flush_and_kill(process: Any) -> None:
            flush(process)
            if begun:
                kill(begun.pop())

        # Billiard looks at the last first: by then it is to have found this one alive.
        processes._pool.sort(key=lambda process: process is job._write_to)
        processes.process_flush_queues = flush_and_kill
        kill(other)
        processes.maintain_pool()
        processes.process_flush_queues = flush


def hang_as_it_starts(app: Any) -> Callable[..., None]:
    """A receiver that keeps a process of the pool from coming up, if a test says so."""

    def receive(**kwargs: Any) -> None:
        while app.effects.client.exists(HANG):
            signal.pause()

    return receive


def fill_the_server(app: Any) -> Callable[..., None]:
    """Return a receiver that makes the broker refuse what takes room, as a task is published whose
    name a test has put there.
    """

    def receive(sender: str, **_: Any) -> None:
        name = app.effects.client.get(FILL)
        if name is not None and name.decode() == sender and app.effects.client.delete(FILL):
            with redis.Redis.from_url(app.conf.broker_url) as client:
                client.config_set("maxmemory", 1)

    return receive


def _begun_after(app: Any, ended: Any) -> bool:
    return any(run.started_at > ended.ended_at for run in app.effects.runs())


def interrupt_a_take(app: Any) -> None:
    """Raise in the main loop when messages are filed and none of them is delivered yet, or quit
    while it has the lock of the log; or take no more after the end of a task before another one has
    begun.
    """
    ask, read = Taking.ask, OpenChannel.read_replies

    def taking(self: Any, keys: Any, args: Any, beside: Any) -> Any:
        name = app.effects.client.get(BEHIND)
        ended = app.effects.finished(name.decode()) if name is not None else []
        if ended and app.effects.client.delete(BEHIND):
            with suppress(AssertionError):
                wait_for(lambda: _begun_after(app, ended[0]), BEHIND_SECONDS, "another run")
        reply = ask(self, keys, args, beside)
        if taken(app, INTERRUPT) is not None:
            raise Interrupted()
        if taken(app, QUIT) is not None:
            with logging.getLogger().handlers[0].lock or nullcontext():
                signal.raise_signal(signal.SIGQUIT)
        return reply

    def reading(self: Any, count: int, *, more: bool = False) -> Any:
        replies = read(self, count, more=more)
        # What ended the wait, and how its message was filed.
        if more and replies[0] is not None and taken(app, INTERRUPT) is not None:
            raise Interrupted()
        return replies

    Taking.ask = taking  # type: ignore[method-assign]
    OpenChannel.read_replies = reading  # type: ignore[method-assign]


# In a process of the project, not in the tests' own.
if "READY_KEY" in os.environ:
    from tests.integration.project.app import app

    before_task_publish.connect(fill_the_server(app), weak=False)
    worker_process_init.connect(hang_as_it_starts(app), weak=False)
    pass_finished.connect(kill_while_locked(app), weak=False)
    interrupt_a_take(app)
    if os.environ.get("KILLS_BOTH"):
        app.steps["consumer"].add(KillBoth)

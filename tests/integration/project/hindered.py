"""Workers that are hindered, by the trap that a test has laid (`TRAP` in their environment)."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from typing import Any

from celery.signals import worker_process_init, worker_ready

from celery_reliable.signals import pass_finished
from tests.support.waiting import wait_for

__all__ = ["KILL_WHILE_LOCKED", "hinder"]

#: The keys by which a test says so; the value is a process id where a process is to be killed.
KILL_WHILE_LOCKED = "moment:kill_while_locked"

#: Less than a fork waits for the thread of the passes.
LOCKED_SECONDS = 1.2


def hinder(app: Any, how: str) -> None:
    """Hinder the processes of this app so, if this is one of the ways."""

    def ask_no_more(sender: Any, **_: Any) -> None:
        """Live, turn, and never ask for a message again."""
        sender.task_consumer.channel.begin_to_wait = lambda timeout=None: None

    def stand(**_: Any) -> None:
        """Hold the main loop in a signal handler until the gate opens that its tasks wait for."""

        def wait(*_: Any) -> None:
            while not app.effects.is_open("door"):
                time.sleep(0.1)

        signal.signal(signal.SIGWINCH, wait)

    def kill_while_locked(**_: Any) -> None:
        """Kill a process while this one has one of the result backend's locks."""
        pid = app.effects.client.getdel(KILL_WHILE_LOCKED)
        if pid is None:
            return
        classes = type(app.backend).__mro__
        prop: Any = next(vars(one)["client"] for one in classes if "client" in vars(one))
        with prop.lock:
            os.kill(int(pid), signal.SIGKILL)
            try:
                wait_for(lambda: _is_replaced(int(pid)), LOCKED_SECONDS, "another process")
            except AssertionError:
                return

    moments: dict[str, tuple[Any, Any]] = {
        "asks no more": (worker_ready, ask_no_more),
        "stands": (worker_ready, stand),
        "comes up late": (worker_process_init, partial(_come_up_late, app)),
        "kills": (pass_finished, kill_while_locked),
    }
    if how in moments:
        moment, receiver = moments[how]
        moment.connect(receiver, weak=False)


def _come_up_late(app: Any, **_: Any) -> None:
    """Be no process of the pool before the gate opens, unless it is the first."""
    if app.effects.client.incr("processes") > 1:
        wait_for(lambda: app.effects.is_open("up"), 60, "the gate")


def _is_replaced(pid: int) -> bool:
    with open(f"/proc/{os.getpid()}/task/{os.getpid()}/children", encoding="ascii") as children:
        others = {int(one) for one in children.read().split()} - {pid}
    return bool(others)

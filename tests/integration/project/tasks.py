"""The bodies of the project's tasks: each writes its run down and does what a test asks of it.

They are plain functions here, so that one module can make them tasks of any app and of any base.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

from celery import chain
from celery.exceptions import Reject

from tests.support.effects import RunRecorder

TICK_SECONDS = 0.025
ONCE_SECONDS = 4.0

# A task that waits for a gate which no test opens must not outlive the test run.
GATE_SECONDS = 180.0


class Broken(Exception):
    """What the tasks raise when told to fail."""


def tasks_of(app: Any) -> Callable[..., Any]:
    """The decorator that makes a body a reliable task of this app, named `project.<function>`."""
    from celery_reliable import ReliableTask

    def task(**options: Any) -> Any:
        options = {"bind": True, "shared": False, "base": ReliableTask, **options}
        return lambda body: app.task(body, **{"name": f"project.{body.__name__}", **options})

    return task


def work(self: Any, seconds: float) -> str:
    """Take so long."""
    with self.app.effects.run(self) as run:
        _pass_time(run, seconds)
    return "worked"


def gate(self: Any, name: str) -> str:
    """Run until the test opens the gate of this name."""
    with self.app.effects.run(self) as run:
        _wait_at_gate(self, run, name)
    return name


def poison(self: Any) -> None:
    """Kill the process that runs it, every time."""
    self.app.effects.start(self)
    _kill_own_process()


def poison_times(self: Any, times: int) -> str:
    """Kill the process that runs it in the first runs, then finish."""
    return follow(self, ["kill"] * times + ["finish"])


def flaky(self: Any, times: int, countdown: float = 0, max_retries: int | None = 3) -> str:
    """Ask for a retry so many times, then finish."""
    return follow(self, ["retry"] * times + ["finish"], countdown, max_retries)


def failing(self: Any, message: str = "as told") -> None:
    """Raise Broken."""
    with self.app.effects.run(self):
        raise Broken(message)


def failing_gate(self: Any, name: str) -> None:
    """Run until the test opens the gate of this name, then raise Broken."""
    with self.app.effects.run(self) as run:
        _wait_at_gate(self, run, name)
        raise Broken("as told")


def follow(
    self: Any, steps: Sequence[str], countdown: float = 0, max_retries: int | None = 3
) -> str:
    """Do in run n what step n says, the last step from then on.

    A step is `kill`, `retry`, `reject` (into the queue), `fail`, `finish`, or `gate:NAME` (wait
    there, then finish) or `retry:NAME` (wait there, then retry).
    """
    with self.app.effects.run(self) as run:
        step = steps[min(run.number, len(steps)) - 1]
        if step == "kill":
            _kill_own_process()
        elif step == "retry":
            raise self.retry(countdown=countdown, max_retries=max_retries)
        elif step == "reject":
            raise Reject("back into the queue", requeue=True)
        elif step == "fail":
            raise Broken(f"in run {run.number}")
        elif step.startswith("retry:"):
            _wait_at_gate(self, run, step.removeprefix("retry:"))
            raise self.retry(countdown=countdown, max_retries=max_retries)
        elif step.startswith("gate:"):
            _wait_at_gate(self, run, step.removeprefix("gate:"))
        elif step != "finish":
            raise ValueError(f"no such step: {step}")
    return f"run {run.number}"


def locked(self: Any, object_id: str, seconds: float) -> str:
    """Take so long, of an object."""
    with self.app.effects.run(self, object_id) as run:
        _pass_time(run, seconds)
    return object_id


def locked_gate(self: Any, object_id: str, name: str) -> str:
    """`gate`, of an object."""
    with self.app.effects.run(self, object_id) as run:
        _wait_at_gate(self, run, name)
    return object_id


def roomy(self: Any, seconds: float) -> str:
    """Of these two run at a time in the whole fleet."""
    return locked(self, "roomy", seconds)


def follow_of(
    self: Any, object_id: str, steps: Sequence[str] = ("finish",), countdown: float = 0
) -> str:
    """`follow`, of an object."""
    return follow(self, steps, countdown)


def unique_replaced(self: Any, object_id: str, links: int) -> None:
    """Replace itself by a task, or by a chain of so many."""
    with self.app.effects.run(self):
        add = self.app.tasks["project.add"]
        raise self.replace(chain(add.s(1, 1), *[add.s(1)] * (links - 1)))


def call(self: Any, name: str, arguments: Sequence[Any]) -> str:
    """Publish another task, and return the id of what was published."""
    with self.app.effects.run(self):
        task = self.app.tasks.get(name) or self.app.tasks[f"project.{name}"]
        return str(task.apply_async(arguments).id)


def add(self: Any, left: int, right: int) -> int:
    """A link of a chain, or a member of a group."""
    with self.app.effects.run(self):
        return left + right


def total(self: Any, numbers: Sequence[int]) -> int:
    """The body of a chord."""
    with self.app.effects.run(self):
        return sum(numbers)


def listed(self: Any, results: Any) -> Any:
    """What comes behind others: give what it was given."""
    with self.app.effects.run(self):
        return results


def replaced(self: Any, numbers: Sequence[int]) -> None:
    """Replace itself by a chain that adds the numbers up."""
    first, second, *rest = numbers
    with self.app.effects.run(self):
        sums = self.app.tasks["project.add"]
        raise self.replace(chain(sums.s(first, second), *[sums.s(number) for number in rest]))


_SKIP = {"object_id": "object_id", "on_conflict": "skip"}
_FAIL = {"object_id": "object_id", "on_conflict": "fail"}
_WAIT = {"object_id": "object_id", "on_conflict": "wait"}
_UNIQUE = {"object_id": "object_id", "unique": "queued"}

#: Those that are named as their bodies, and have no options.
_ORDINARY = (
    *(work, gate, poison, poison_times, flaky, failing, failing_gate, follow),
    *(call, add, total, listed, replaced),
)

#: Bodies by the names of their tasks, with the options of ReliableTask that each shows.
RELIABLE: dict[str, tuple[Any, dict[str, Any]]] = {
    **{body.__name__: (body, {}) for body in _ORDINARY},
    "locked": (locked, _SKIP),
    "locked_gate": (locked_gate, _SKIP),
    "locked_fail": (locked, _FAIL),
    # The same by its other name.
    "locked_retry": (locked, {**_WAIT, "on_conflict": "retry"}),
    "in_line": (locked, _WAIT),
    "in_line_gate": (locked_gate, _WAIT),
    "three": (locked, {**_WAIT, "at_most": 3}),
    "placed": (locked, {**_WAIT, "at_most": 2, "place": "queued"}),
    "placed_follow": (follow_of, {**_WAIT, "place": "queued"}),
    "roomy": (roomy, {"at_most": 2, "on_conflict": "wait"}),
    "unique": (follow_of, _UNIQUE),
    "unique_fail": (follow_of, {**_UNIQUE, "on_conflict": "fail"}),
    "unique_replaced": (unique_replaced, _UNIQUE),
    "once": (follow_of, {**_UNIQUE, "once_for_seconds": ONCE_SECONDS}),
    "once_fail": (follow_of, {**_FAIL, "once_for_seconds": 60}),
    "once_undead": (follow_of, {**_FAIL, "once_for_seconds": 60, "dead_letter": False}),
}

#: The same, of stock Celery.
PLAIN = {"plain_gate": gate, "plain_work": work}


def _pass_time(run: RunRecorder, seconds: float) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, TICK_SECONDS))
        run.tick()


def _wait_at_gate(task: Any, run: RunRecorder, name: str) -> None:
    until = time.monotonic() + GATE_SECONDS
    while not task.app.effects.is_open(name):
        if time.monotonic() > until:
            raise TimeoutError(f"nobody opened the gate {name!r} within {GATE_SECONDS:g} s")
        time.sleep(TICK_SECONDS)
        run.tick()


def _kill_own_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)

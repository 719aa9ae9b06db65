"""Eight short stories, in each of which every command is cut once."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from celery import chord

if TYPE_CHECKING:
    from proof.cuts.log import Log
    from proof.cuts.play import Play

__all__ = ["IDLE", "OBJECTS", "SCENARIOS", "Scenario"]

_PARKED_SECONDS = 2.0
#: For so many passes of the sweeper an idle worker is watched.
_IDLE_PASSES = 5
#: Which object the tasks of a name have.
OBJECTS = {"project.unique": "object"}


def _act(play: Play) -> None:
    play.publish()


def _prepare(play: Play) -> None:
    play.start_subject()


@dataclass(frozen=True)
class Scenario:
    """What is published, in a process of its own, and what happens before and after.

    `prepare` ends before anything is counted, and starts the worker whose commands are.
    """

    name: str
    publish: Callable[[Any, Log], None]
    prepare: Callable[[Play], None] = field(default=_prepare)
    act: Callable[[Play], None] = field(default=_act)
    #: Whether a worker that has done other scenarios will do.
    takes_used: bool = True


def _work(app: Any, log: Log) -> None:
    log.published(_task(app, "work").apply_async((0.01,)).id)


def _retry(app: Any, log: Log) -> None:
    log.published(_task(app, "follow").apply_async((["retry", "finish"],)).id)


def _parked(app: Any, log: Log) -> None:
    log.published(_task(app, "work").apply_async((0.01,), countdown=_PARKED_SECONDS).id)


def _held(app: Any, log: Log) -> None:
    log.published(_task(app, "follow").apply_async((["gate:held", "finish"],)).id)


def _deadly(app: Any, log: Log) -> None:
    log.published(_task(app, "poison_times").apply_async((1,)).id)


def _failing(app: Any, log: Log) -> None:
    log.published(_task(app, "follow").apply_async((["fail", "finish"],)).id)


def _unique(app: Any, log: Log) -> None:
    for _ in range(2):
        log.published(_task(app, "unique").apply_async(("object",)).id)


def _chord(app: Any, log: Log) -> None:
    add, total = _task(app, "add"), _task(app, "total")
    headers = [uuid4().hex for _ in range(2)]
    body = uuid4().hex
    log.note("chord", body=body, headers=headers)
    chord([add.s(1, 1).set(task_id=one) for one in headers])(total.s().set(task_id=body))
    log.published(*headers)


def _task(app: Any, name: str) -> Any:
    return app.tasks[f"project.{name}"]


def _hold(play: Play) -> None:
    """One that is about to die has the task, and another worker is there."""
    victim = play.start_other()
    play.publish()
    play.wait_for_runs(1)
    play.start_subject()
    play.victim = victim


def _kill(play: Play) -> None:
    assert play.victim is not None
    play.victim.kill_group()
    play.publish("deadly")


def _replay(play: Play) -> None:
    play.publish()
    play.replay_letters()


def _hold_here(play: Play) -> None:
    play.start_subject()
    play.publish()
    play.wait_for_runs(1)


def _stop_cold(play: Play) -> None:
    assert play.subject is not None
    play.subject.signal_main(signal.SIGQUIT)


def _work_off(play: Play) -> None:
    play.start_subject()
    play.publish("publish-run-settle")
    play.wait_until_over()


def _idle(play: Play) -> None:
    play.wait_for_passes(_IDLE_PASSES)


_ALL = (
    Scenario("publish-run-settle", _work),
    Scenario("retry", _retry),
    Scenario("kill-recover", _held, _hold, _kill, takes_used=False),
    Scenario("bury-replay", _failing, act=_replay),
    Scenario("park-send", _parked),
    Scenario("unique", _unique),
    Scenario("chord", _chord),
    Scenario("cold-stop", _held, _hold_here, _stop_cold, takes_used=False),
)

SCENARIOS = {scenario.name: scenario for scenario in _ALL}
#: A part of another scenario.
PARTS = {"deadly": _deadly}
#: What a worker sends when all is done.
IDLE = Scenario("idle", _work, _work_off, _idle, takes_used=False)

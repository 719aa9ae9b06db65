"""What the body of a task does, as its call was planned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery import chain
from celery.exceptions import Reject

from tests.ledger.driver import tasks
from tests.ledger.driver.facts import Body, Call

#: After so many runs a body that does not end otherwise comes to its end.
_MOST_RUNS = 3
_ENDLESS = ("retry", "send_back")


def run_body(world: Any, task: Any, call: Call, body: Body) -> Any:
    """Take time, and end as planned."""
    is_enough = len(call.bodies) > _MOST_RUNS and call.plan in _ENDLESS
    for _ in range(world.choice.choice((0, 1, 3))):
        world.schedule.sleep(world.choice.choice((0.01, 0.1, 1.0)))
    if not is_enough and call.plan in _PLANS:
        _PLANS[call.plan](world, task, call, body)
    return call.nonce


def _long(world: Any, task: Any, call: Call, body: Body) -> None:
    world.schedule.sleep(world.choice.choice((3.0, 12.0, 30.0)))


def _touch(world: Any, task: Any, call: Call, body: Body) -> None:
    for _ in range(3):
        world.schedule.sleep(3.0)
        if not task.touch():
            return


def _poison(world: Any, task: Any, call: Call, body: Body) -> None:
    world.events.kill_of_body(body, is_whole=call.plan == "poison")
    world.schedule.sleep(0.001)


def _fail(world: Any, task: Any, call: Call, body: Body) -> None:
    raise tasks.Broken(call.nonce)


def _retry(world: Any, task: Any, call: Call, body: Body) -> None:
    raise task.retry(args=(call.nonce, *task.request.args[1:]), countdown=1, throw=False)


def _replace(world: Any, task: Any, call: Call, body: Body) -> None:
    n_members = world.choice.choice((1, 2))
    # Of what the server forgot, two attempts may become canvases side by side.
    nonces = [f"{call.nonce}.{len(call.members)}.{n}" for n in range(n_members)]
    for nonce in nonces:
        world.observer.planned(nonce, call.task_id, call.name, call.place, call)
    # The last member of the chain gets the task's id.
    parts = [task.app.tasks["work"].si(nonce) for nonce in nonces[:-1]]
    last = task.app.tasks[task.name].si(nonces[-1], *task.request.args[1:])
    raise task.replace(chain(*parts, last) if parts else last)


def _send_back(world: Any, task: Any, call: Call, body: Body) -> None:
    raise Reject("the body wants to run again", requeue=True)


_PLANS: dict[str, Callable[[Any, Any, Call, Body], None]] = {
    "long": _long, "touch": _touch, "poison": _poison, "poison_child": _poison, "fail": _fail,
    "retry": _retry, "replace": _replace, "send_back": _send_back,
}  # fmt: skip

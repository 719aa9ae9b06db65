"""What the body of a task does, as its call was planned."""

from __future__ import annotations

from typing import Any

from tests.ledger.driver import tasks
from tests.ledger.driver.facts import Body, Call

#: After so many runs a body that does not end otherwise comes to its end.
_MOST_RUNS = 3


def run_body(world: Any, task: Any, call: Call, body: Body) -> Any:
    """Take time, and end as planned."""
    choice, schedule = world.choice, world.schedule
    plan = "ok" if len(call.bodies) > _MOST_RUNS and call.plan in _LOOPS else call.plan
    for _ in range(choice.choice((0, 1, 3))):
        schedule.sleep(choice.choice((0.01, 0.1, 1.0)))
    if plan == "long":
        schedule.sleep(choice.choice((3.0, 12.0, 30.0)))
    elif plan == "touch":
        for _ in range(3):
            schedule.sleep(3.0)
            if not task.touch():
                break
    elif plan in ("poison", "poison_child"):
        world.events.kill_of_body(body, is_whole=plan == "poison")
        schedule.sleep(0.001)
    elif plan == "fail":
        raise tasks.Broken(call.nonce)
    elif plan == "retry":
        tasks.begin_anew(task, call.nonce)
    elif plan == "replace":
        nonces = [f"{call.nonce}.{len(call.bodies)}.{n}" for n in range(choice.choice((1, 2)))]
        for nonce in nonces:
            world.observer.planned(nonce, call.task_id, call.name, call.place, call)
        tasks.become(task, nonces)
    elif plan == "send_back":
        tasks.send_back()
    return call.nonce


_LOOPS = ("retry", "send_back")

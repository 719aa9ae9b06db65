"""The project's app, whose processes write down what its signals tell them."""

from __future__ import annotations

import json
from typing import Any

from celery.exceptions import Reject

from celery_reliable import ReliableTask, signals
from tests.integration.project.app import app

__all__ = ["TOLD"]

#: Where that is, in the effects' database.
TOLD = "told"


def note(signal: Any, sender: Any, **facts: Any) -> None:
    facts.pop("traceback", None)
    row = {"signal": signal.name, "sender": str(sender), **facts}
    app.effects.client.rpush(TOLD, json.dumps(row))


for one in (signals.task_buried, signals.task_lost):
    one.connect(note, weak=False)


@app.task(base=ReliableTask, bind=True, shared=False, name="project.send_back")
def send_back(self: Any, requeue: bool) -> None:
    """Have no outcome, or refuse."""
    with app.effects.run(self):
        raise Reject("as told", requeue=requeue)

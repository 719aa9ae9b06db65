"""What is stored of a task that is called off while it goes from one state to another."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from celery import Celery

from celery_reliable.ledger import answers
from celery_reliable.model import Record, State
from celery_reliable.recovery import call_off_task

MESSAGE = (
    '{"body": "[[], {}, {}]", "headers": {"id": "task", "task": "shop.work"}, "properties": {}}'
)


@pytest.mark.parametrize("seen", [State.QUEUED, State.PARKED])
def test_it_is_revoked_to_its_caller_before_its_record_goes(seen: State) -> None:
    """Whoever dies in between leaves a record, by which somebody finds it again."""
    app = Celery("shop", broker="memory://", backend="cache+memory://", set_as_current=False)
    task_id = f"first {seen.value}"
    states = []

    def revoke(*_: Any, **__: Any) -> answers.Cancelled:
        states.append(cast(Any, app.AsyncResult(task_id)).state)
        return answers.Cancelled()

    ledger: Any = SimpleNamespace(revoke=revoke)
    call_off_task(app, ledger, Record(task_id, seen, name="shop.work", message=MESSAGE))

    assert states == ["REVOKED"]

"""What is stored of a task that is called off while it goes from one state to another."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from celery import Celery

from celery_reliable.exceptions import LedgerUnavailable
from celery_reliable.ledger import answers
from celery_reliable.model import Record, State
from celery_reliable.recovery import call_off, call_off_task, revocations

MESSAGE = (
    '{"body": "[[], {}, {}]", "headers": {"id": "task", "task": "shop.work"}, "properties": {}}'
)


@pytest.mark.parametrize("seen", [State.QUEUED, State.PARKED, State.RUNNING])
def test_what_nobody_runs_any_more_is_revoked_to_its_caller(seen: State) -> None:
    """Also when it was seen to run, and its attempt has published it anew since."""
    app = Celery("shop", broker="memory://", backend="cache+memory://", set_as_current=False)
    ledger: Any = SimpleNamespace(revoke=lambda *_, **__: answers.Cancelled())

    call_off_task(
        app, ledger, Record(f"seen {seen.value}", seen, name="shop.work", message=MESSAGE)
    )

    assert cast(Any, app.AsyncResult(f"seen {seen.value}")).state == "REVOKED"


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


def test_what_runs_is_not_revoked_to_its_caller_yet() -> None:
    app = Celery("shop", broker="memory://", backend="cache+memory://", set_as_current=False)
    ledger: Any = SimpleNamespace(revoke=lambda *_, **__: answers.Running("worker"))

    call_off_task(app, ledger, Record("task", State.RUNNING, name="shop.work", message=MESSAGE))

    assert cast(Any, app.AsyncResult("task")).state == "PENDING"


@pytest.mark.parametrize(
    ("error", "left"), [(ValueError(), []), (LedgerUnavailable(), ["second", "third"])]
)
def test_one_that_fails_drops_no_other(
    monkeypatch: pytest.MonkeyPatch, error: Exception, left: list[str]
) -> None:
    revoked = []

    def revoke(task_id: str, **_: Any) -> answers.Running:
        if task_id == "second":
            raise error
        revoked.append(task_id)
        return answers.Running("worker")

    def found(task_ids: list[str], **_: Any) -> list[Any]:
        return [
            SimpleNamespace(task_id=one, record=Record(one, State.RUNNING, message=MESSAGE))
            for one in task_ids
        ]

    ledger = SimpleNamespace(revoke=revoke, find_in_groups=found)
    reliable = SimpleNamespace(is_unprotected=False, ledger=ledger)
    monkeypatch.setattr(revocations, "reliable_of", lambda app: reliable)
    app: Any = None

    assert call_off(app, ["first", "second", "third"]) == left
    assert revoked == [one for one in ("first", "third") if one not in left]

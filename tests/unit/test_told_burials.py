"""A burial is told when there was one, and its failure is not told by somebody else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery

from celery_reliable.attempt import bury, conclusion
from celery_reliable.ledger import answers
from celery_reliable.model import Claim, Reason
from celery_reliable.signals import task_buried

CLAIM = Claim("id", 2, "one/1.0", "token", 1)


@pytest.mark.parametrize(
    ("answer", "is_owed", "n_told"),
    [
        (answers.Buried(), False, 1),
        (answers.Buried(), True, 0),
        (answers.Fenced("running"), False, 0),
        (answers.Gone(), False, 0),
    ],
)
def test_who_buries_tells_of_what_he_buried(
    monkeypatch: pytest.MonkeyPatch, answer: Any, is_owed: bool, n_told: int
) -> None:
    ledger = SimpleNamespace(bury=lambda *args, **kwargs: answer)
    monkeypatch.setattr(conclusion, "reliable_of", lambda app: SimpleNamespace(ledger=ledger))
    task: Any = SimpleNamespace(app=Celery(broker="memory://", set_as_current=False), name="work")
    told: list[dict[str, Any]] = []

    def hear(**kwargs: Any) -> None:
        told.append(kwargs)

    task_buried.connect(hear)
    try:
        error = RuntimeError("too long")
        bury(task, CLAIM, Reason.TIME_LIMIT, error, is_owed=is_owed, patience_seconds=1.0)
    finally:
        task_buried.disconnect(hear)
    assert [(one["task_id"], one["attempt"]) for one in told] == [("id", 2)] * n_told

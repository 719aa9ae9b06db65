"""Errors reach their caller with all their facts, by whichever way."""

from __future__ import annotations

import json
import pickle
from datetime import datetime, timezone

import pytest
from celery import Celery
from celery.backends.base import Backend

from celery_reliable import exceptions
from celery_reliable.exceptions import (
    ConfigurationError,
    LedgerForbidden,
    LedgerRefused,
    LedgerUnavailable,
    NotPublished,
    ObjectBusy,
    ObjectIdError,
    PublishUnknown,
    ReliableError,
    RowTaken,
    TaskExists,
    UnknownDeadLetter,
)
from celery_reliable.publishing import errors

WITH_FACTS = [
    ReliableError(),
    ConfigurationError("A and B", problems=("A", "B")),
    ObjectIdError(task_name="proj.add"),
    ObjectBusy(holder="an-id"),
    LedgerUnavailable(operation="claim"),
    LedgerForbidden("no", operation="settle", reply="NOPERM"),
    LedgerRefused("no", operation="settle", reply="OOM command not allowed"),
    NotPublished(task_id="an-id"),
    PublishUnknown(task_id="an-id"),
    errors.NotPublished(task_id="an-id"),
    errors.PublishUnknown(task_id="an-id"),
    RowTaken(holder="an-id"),
    TaskExists(task_id="an-id", state="dead", since=datetime(2026, 1, 1, tzinfo=timezone.utc)),
    UnknownDeadLetter(task_id="an-id"),
]


def test_the_list_above_is_whole() -> None:
    names = [name for name in exceptions.__all__ if not name.endswith("Warning")]
    classes = [name for name in names if name[0].isupper()]
    assert sorted({type(error).__name__ for error in WITH_FACTS}) == classes


@pytest.mark.parametrize("error", WITH_FACTS, ids=lambda error: type(error).__name__)
def test_an_error_survives_its_way(error: ReliableError) -> None:
    """From a child to the main process, and through a backend that stores JSON."""
    assert isinstance(error, ReliableError)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert (str(copy), vars(copy)) == (str(error), vars(error))

    backend = Backend(Celery("test", broker="memory://", set_as_current=False))
    stored = json.loads(json.dumps(backend.prepare_exception(error, "json")))
    copy = backend.exception_to_python(stored)
    assert type(copy) is type(error)
    assert str(copy) == str(error)


def test_what_a_caller_may_expect_to_catch() -> None:
    assert issubclass(ObjectIdError, ValueError)
    assert issubclass(UnknownDeadLetter, LookupError)
    # Celery ends a worker's broker connection, or retries a publish, on an OSError.
    assert not issubclass(LedgerUnavailable, OSError)

from __future__ import annotations

import json
import pickle
from datetime import datetime, timezone

import pytest
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

each_error = pytest.mark.parametrize("error", WITH_FACTS, ids=lambda error: type(error).__name__)


def test_the_list_above_is_whole():
    names = [name for name in exceptions.__all__ if not name.endswith("Warning")]
    classes = [name for name in names if name[0].isupper()]
    assert sorted({type(error).__name__ for error in WITH_FACTS}) == classes


@each_error
def test_every_error_has_the_one_root(error):
    assert isinstance(error, ReliableError)


@each_error
def test_an_error_survives_the_way_from_child_to_main_process(error):
    copy = pickle.loads(pickle.dumps(error))

    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


@each_error
def test_an_error_survives_a_json_result_backend(error, celery_app_without_broker):
    backend = Backend(celery_app_without_broker)
    stored = json.loads(json.dumps(backend.prepare_exception(error, "json")))

    copy = backend.exception_to_python(stored)

    assert type(copy) is type(error)
    assert str(copy) == str(error)


@pytest.fixture
def celery_app_without_broker():
    from celery import Celery

    return Celery("test", broker="memory://", set_as_current=False)


def test_facts_are_attributes():
    error = TaskExists("no", task_id="an-id", state="dead")

    assert (error.task_id, error.state, error.since) == ("an-id", "dead", None)


@pytest.mark.parametrize(
    ("error", "builtin"), [(ObjectIdError, ValueError), (UnknownDeadLetter, LookupError)]
)
def test_what_a_caller_may_expect_to_catch(error, builtin):
    assert issubclass(error, builtin)


def test_a_lost_ledger_is_not_taken_for_a_lost_broker():
    # Celery ends a worker's broker connection, or retries a publish, on an OSError.
    assert not issubclass(LedgerUnavailable, OSError)

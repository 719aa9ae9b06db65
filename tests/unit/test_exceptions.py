"""Errors reach their caller with all their facts, and so does the death of a process."""

from __future__ import annotations

import json
import pickle
from datetime import datetime, timezone
from pathlib import Path

import pytest
from billiard.exceptions import WorkerLostError
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
from celery_reliable.ledger.outcomes import kind_of_death
from celery_reliable.model import Cause
from celery_reliable.publishing import sending
from celery_reliable.worker import claims
from celery_reliable.worker.claims import how_it_ended

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
    sending.NotPublished(task_id="an-id"),
    sending.PublishUnknown(task_id="an-id"),
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


# -- what is told of a process that died, and what is read of it later


def lost(how: str) -> WorkerLostError:
    return WorkerLostError(f"Worker exited prematurely: {how} Job: 3.")


KILLED = lost("signal 9 (SIGKILL)")


@pytest.mark.parametrize(
    ("error", "told", "death"),
    [
        (KILLED, "signal 9 (SIGKILL), pid 7", "child_lost, SIGKILL"),
        (lost("exitcode 70"), "exitcode 70, pid 7", "child_lost, exit code 70"),
        (WorkerLostError("something\nelse"), "something else, pid 7", "child_lost"),
    ],
)
def test_signal_or_exit_code_and_process(error: Exception, told: str, death: str) -> None:
    assert how_it_ended(error, 7) == told
    assert kind_of_death(Cause.CHILD_LOST, told) == death
    # An exception's text is anybody's.
    assert kind_of_death(Cause.NO_OUTCOME, told) == "no_outcome"


def test_out_of_memory_is_told_where_the_kernel_has_killed_just_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = tmp_path / "memory.events"
    events.write_text("oom 9\noom_kill 7\noom_group_kill 0\n")
    monkeypatch.setattr(claims, "_kills_file", events)
    monkeypatch.setattr(claims, "_kills_seen", [])
    claims.note_kills()
    events.write_text("oom 9\noom_kill 8\noom_group_kill 0\n")

    told = how_it_ended(KILLED, 7)

    assert told == "signal 9 (SIGKILL), pid 7, out of memory"
    assert kind_of_death(Cause.CHILD_LOST, told) == "child_lost, SIGKILL, out of memory"
    # Two may be killed at once, and are told of one after the other.
    assert how_it_ended(KILLED, 8).endswith("out of memory")
    assert how_it_ended(lost("signal 11 (SIGSEGV)"), 9) == "signal 11 (SIGSEGV), pid 9"

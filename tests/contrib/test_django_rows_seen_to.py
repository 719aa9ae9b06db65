"""Rows whose task nobody has seen for a while: what the ledger says of it is written into them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from celery import Celery, states
from django.utils import timezone

from celery_reliable.app import reliable_of
from celery_reliable.contrib.django.rows import attempts, look_after_rows
from celery_reliable.contrib.django.rows.model import all_rows, wait_for
from celery_reliable.exceptions import RowTaken
from celery_reliable.model import Cause, Claim, ClaimRequest, Reason, State, TaskRef
from tests.contrib.test_django_rows import begun, book, make, ran, record_of, status, write
from tests.support.promises import promise

__all__ = ["book", "make"]


@pytest.fixture
def task(make: Any, celery_project: Celery, redis_address: str) -> Iterator[Any]:
    celery_project.conf.result_backend = f"redis://{redis_address}/0"
    yield make(lambda task: write(task, pages=task.attempt))
    reliable_of(celery_project).close()


def forget(book: Any, seconds: float = 120) -> None:
    """As if nobody had looked at a row for so long."""
    at = timezone.now() - timedelta(seconds=seconds)
    type(book).objects.filter(pk=book.pk).update(task_seen_at=at)


def looked_after(task: Any, **options: Any) -> dict[str, int]:
    found = look_after_rows(task.app, **options)
    return {name: count for name, count in found.items() if count and name != "looked_at"}


def committed_only(task: Any, book: Any) -> str:
    """As if the publisher had been killed after its commit."""
    return wait_for(row_of(book), task.name, "chosen", keeps=False)


def row_of(book: Any) -> Any:
    return all_rows(type(book)).filter(pk=book.pk)


def claimed(task: Any, task_id: str) -> Claim:
    """Begin an attempt in the ledger."""
    ledger = reliable_of(task.app).ledger
    ledger.workers.register("w", lease_ms=60_000, client_id=0, facts={})
    record = ledger.find(task_id)
    request = ClaimRequest(
        TaskRef(task_id, task.name), record.epoch, ledger.generation, "w", f"t{record.attempt}", 1
    )
    answer = ledger.claim(request)
    return request.claim(answer.attempt, answer.losses)


@promise("commit-and-publish")
# A time in the future was written before the database's clock stepped back.
@pytest.mark.parametrize("seconds", [120, -90])
def test_what_was_committed_and_never_published_is_published(
    book: Any, task: Any, seconds: float
) -> None:
    task_id = committed_only(task, book)
    assert looked_after(task) == {}
    assert type(book).objects.unpublished(older_than_seconds=60).count() == 0
    forget(book, seconds)
    assert type(book).objects.unpublished(older_than_seconds=60).get() == book
    assert looked_after(task) == {"published": 1}
    assert record_of(task, task_id).state is State.QUEUED
    # And once: what lives is left alone.
    forget(book)
    epoch = record_of(task, task_id).epoch
    assert looked_after(task) == {}
    assert record_of(task, task_id).epoch == epoch
    assert ran(task, book.pk, task_id) is None
    assert status(book) == ("succeeded", 1, 1)
    assert looked_after(task, older_than_seconds=0) == {}


def test_what_follows_an_effect_leaves_nothing_to_look_after(book: Any, make: Any) -> None:
    def body(task: Any) -> None:
        with task.effect():
            write(task, pages=1)
        # All of these lock the row.
        task.row.save()
        with task.effect("sent") as effect:
            assert effect.is_first

    task = make(body)
    ran(task, book.pk, task.delay(book.pk).id)
    assert status(book) == ("succeeded", 1, 1)
    assert book.task_seen_at is None
    forget(book)
    assert look_after_rows(task.app, older_than_seconds=0)["looked_at"] == 0


def test_a_row_of_a_lost_attempt_waits_again(book: Any, task: Any) -> None:
    task_id = task.delay(book.pk).id
    claim = claimed(task, task_id)
    ledger = reliable_of(task.app).ledger

    def while_it_runs(now: Any) -> None:
        forget(book)
        assert looked_after(task) == {}
        assert status(book)[0] == "running"
        ledger.lose(claim, Cause.WORKER_LOST, max_losses=3, due_in_ms=0, is_taken=True)
        forget(book)
        assert looked_after(task) == {"waiting": 1}
        assert status(book)[0] == "waiting"
        assert book.task_losses == 1
        raise KeyboardInterrupt

    make_running(task, book, task_id, while_it_runs)
    assert ran(task, book.pk, task_id, 2, losses=1) is None
    assert status(book) == ("succeeded", 2, 2)


def make_running(task: Any, book: Any, task_id: str, then: Any) -> None:
    """Begin an attempt of the row, and break it off."""
    with begun(task, task_id, 1), pytest.raises(KeyboardInterrupt):
        attempts.run(task, row_of(book), task_id, lambda: then(task))


def break_off(task: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(("reason", "expected"), [(Reason.LOST, "dead"), (Reason.FAILED, "failed")])
def test_a_row_of_a_dead_letter_says_so_and_a_replay_runs(
    book: Any, task: Any, reason: Reason, expected: str
) -> None:
    task_id = task.delay(book.pk).id
    claim = claimed(task, task_id)
    make_running(task, book, task_id, break_off)
    reliable_of(task.app).ledger.bury(
        claim, reason, exception="ValueError: no", traceback="", patience_seconds=1
    )
    forget(book)
    assert looked_after(task) == {"ended": 1}
    assert status(book)[0] == expected
    assert book.task_error == "ValueError: no"
    assert looked_after(task, older_than_seconds=0) == {}
    assert ran(task, book.pk, task_id, 2) is None
    assert status(book) == ("succeeded", 2, 2)


@pytest.mark.parametrize(
    ("state", "expected"),
    [(states.REVOKED, "revoked"), (states.FAILURE, "failed"), (states.SUCCESS, "succeeded")],
)
def test_a_row_of_a_task_that_has_ended_says_how(
    book: Any, task: Any, state: str, expected: str
) -> None:
    task_id = task.delay(book.pk).id
    make_running(task, book, task_id, break_off)
    result = {"a": 1} if state == states.SUCCESS else ValueError("no")
    task.backend.store_result(task_id, result, state)
    reliable_of(task.app).ledger.cancel(
        task_id, epoch=record_of(task, task_id).epoch, outcome=state
    )
    forget(book)
    assert looked_after(task) == {"ended": 1}
    assert status(book)[0] == expected
    assert book.task_result == ({"a": 1} if state == states.SUCCESS else None)


def test_what_the_server_has_lost_runs_again_and_late_attempts_write_nothing(
    book: Any, task: Any
) -> None:
    task_id = task.delay(book.pk).id

    def while_it_runs(now: Any) -> None:
        write(now, cents=1)
        ledger = reliable_of(task.app).ledger
        ledger.cancel(task_id, epoch=record_of(task, task_id).epoch, outcome="")
        forget(book)
        assert looked_after(task) == {"published": 1}
        with pytest.raises(RowTaken):
            write(now, cents=2)
        raise KeyboardInterrupt

    make_running(task, book, task_id, while_it_runs)
    assert ran(task, book.pk, task_id) is None
    assert status(book) == ("succeeded", 1, 1)
    assert book.cents == 1


def test_a_row_of_a_task_that_is_not_there_any_more_stays(book: Any, task: Any) -> None:
    wait_for(row_of(book), "shelf.gone", "an-id", keeps=False)
    forget(book)
    assert looked_after(task) == {"failed": 1}
    assert status(book)[0] == "waiting"

"""Rows with tasks: who may write them, what is written, and what database and admin show of it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context
from datetime import timedelta
from types import ModuleType
from typing import Any

import pytest
from celery import Celery
from celery.exceptions import Ignore, Reject, Retry
from celery.utils import uuid
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.db import transaction
from django.db.models.functions import Now
from django.test import Client
from django.urls import clear_url_caches

from celery_reliable.app import reliable_of
from celery_reliable.context import RunningAttempt, running
from celery_reliable.contrib.django.rows import RowTask
from celery_reliable.exceptions import ConfigurationError, NotPublished, ReliableError
from celery_reliable.model import Claim, State
from celery_reliable.task import ReliableTask
from tests.contrib.shelf.models import Book
from tests.docs.blocks import Page
from tests.support.promises import promise

Body = Callable[[Any], Any]


@pytest.fixture
def book(django_project: None) -> Iterator[Any]:
    made = Book.objects.create(title="a")
    yield made
    Book.objects.all().delete()


@pytest.fixture
def make(celery_project: Celery) -> Callable[..., Any]:
    """Make a task of a body: `make(body, **options)`."""

    def make(body: Body = lambda task: None, **options: Any) -> Any:
        def run(self: Any, book_id: int) -> Any:
            return body(self)

        given = {"row_model": "shelf.Book", **options}
        return celery_project.task(
            bind=True, base=RowTask, name="shelf.count", shared=False, **given
        )(run)

    return make


def ran(task: Any, pk: int, task_id: str, attempt: int = 1, losses: int = 0) -> Any:
    """What an attempt of a task returns, as in a worker; it is the current one of the ledger."""
    with begun(task, task_id, attempt, losses):
        task.request.update(args=(pk,), kwargs={})
        return task(pk)


@contextmanager
def begun(task: Any, task_id: str, attempt: int, losses: int = 0) -> Iterator[None]:
    token = running.set(RunningAttempt(Claim(task_id, attempt, "w", f"t{attempt}", losses)))
    task.push_request(id=task_id, called_directly=False, is_eager=False)
    try:
        yield
    finally:
        task.pop_request()
        running.reset(token)


def write(task: Any, **columns: Any) -> None:
    """Write these columns of a task's row, in its body."""
    for name, value in columns.items():
        setattr(task.row, name, value)
    task.row.save(update_fields=[*columns])


def record_of(task: Any, task_id: str) -> Any:
    return reliable_of(task.app).ledger.find(task_id)


def status(book: Any) -> tuple[str, int, Any]:
    book.refresh_from_db()
    return book.task_status, book.task_attempt, book.pages


# -- publishing


def test_who_chooses_an_id_or_names_no_row_is_told(book: Any, make: Any) -> None:
    task = make()
    with pytest.raises(ConfigurationError, match="Leave task_id out"):
        task.apply_async((book.pk,), task_id="one")
    # Nor in a canvas, if somebody may have had the id.
    with pytest.raises(ConfigurationError, match="Leave task_id out"):
        task.apply_async((book.pk,), task_id="one", group_id="all")
    with pytest.raises(type(book).DoesNotExist):
        task.delay(book.pk + 1)
    assert status(book)[0] == ""
    task_id = uuid()
    task.apply_async((book.pk,), task_id=task_id, group_id="all")
    assert status(book)[0] == "waiting"
    assert book.task_id == task_id


def test_publishing_lets_the_row_wait_and_sends_when_it_is_committed(book: Any, make: Any) -> None:
    task = make()
    with transaction.atomic():
        result = task.delay(book.pk)
        transaction.set_rollback(True)
    assert record_of(task, result.id) is None
    assert status(book)[0] == ""
    with transaction.atomic():
        result = task.delay(book.pk)
        assert record_of(task, result.id) is None
    assert record_of(task, result.id).state is State.QUEUED
    assert status(book) == ("waiting", 0, None)
    assert (book.task_id, book.task_name, book.task_seen_at is None) == (
        result.id,
        "shelf.count",
        False,
    )


@pytest.mark.parametrize("if_open", ["replace", "keep"])
def test_a_second_call_while_the_first_is_open(book: Any, make: Any, if_open: str) -> None:
    task = make(if_open=if_open)
    first, second = task.delay(book.pk), task.delay(book.pk)
    book.refresh_from_db()
    assert (second.id == first.id) is (if_open == "keep")
    assert book.task_id == second.id
    assert ran(task, book.pk, second.id) is None
    assert task.delay(book.pk).id not in (first.id, second.id)


def test_what_cannot_be_sent_is_left_to_who_looks_after_rows(
    book: Any, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **options: Any) -> None:
        raise NotPublished

    task = make()
    monkeypatch.setattr(ReliableTask, "apply_async", refuse)
    task.delay(book.pk)
    assert status(book)[0] == "waiting"
    with transaction.atomic():
        task.delay(book.pk)
    # The row does not know what follows the task.
    with pytest.raises(NotPublished):
        task.apply_async((book.pk,), link=task.si(book.pk))


# -- attempts


def test_an_attempt_has_the_row_and_what_it_writes_is_there(book: Any, make: Any) -> None:
    def body(task: Any) -> Any:
        assert status(book) == ("running", 1, None)
        assert task.row.title == "a"
        write(task, pages=3)
        task.row.title = "b"
        task.row.save()
        return {"pages": task.row.pages}

    task = make(body)
    assert ran(task, book.pk, task.delay(book.pk).id, losses=2) == {"pages": 3}
    assert status(book) == ("succeeded", 1, 3)
    assert (book.task_result, book.title, book.task_losses) == ({"pages": 3}, "b", 2)
    assert book.task_seen_at is None
    assert book.task_started_at <= book.task_ended_at


@promise("late-changes-nothing")
def test_an_attempt_of_which_another_has_begun_writes_nothing(book: Any, make: Any) -> None:
    calls = []

    def body(task: Any) -> Any:
        calls.append(task.row)
        if len(calls) == 1:
            # Another worker runs the second attempt, while the first is frozen.
            Context().run(ran, task, book.pk, task.request.id, 2)
            late = calls[0]
            for late_write in (late.save, lambda: write(task, pages=1), task.effect().__enter__):
                with pytest.raises(ReliableError, match="another attempt"):
                    late_write()
        else:
            write(task, pages=2)
        return len(calls)

    task = make(body)
    task_id = task.delay(book.pk).id
    assert ran(task, book.pk, task_id) == {"skipped": task_id}
    assert status(book) == ("succeeded", 2, 2)
    assert book.task_result == 2


def test_a_task_that_was_replaced_ends_without_an_error(book: Any, make: Any) -> None:
    def body(task: Any) -> Any:
        if not replaced:
            replaced.append(task.delay(book.pk).id)
        write(task, pages=1)

    replaced: list[str] = []
    task = make(body)
    first = task.delay(book.pk).id
    # As it runs, and one that has not begun.
    assert ran(task, book.pk, first) == {"skipped": replaced[0]}
    assert ran(task, book.pk, first, 2) == {"skipped": replaced[0]}
    assert status(book) == ("waiting", 0, None)
    assert ran(task, book.pk, replaced[0]) is None
    assert status(book) == ("succeeded", 1, 1)


@promise("attempts-of-one-id")
def test_a_late_attempt_of_a_former_task_takes_no_row(book: Any, make: Any) -> None:
    task = make(lambda task: write(task, pages=task.attempt))
    former = task.delay(book.pk).id
    epoch = record_of(task, former).epoch
    reliable_of(task.app).ledger.cancel(former, epoch=epoch, outcome="")
    task_id = task.delay(book.pk).id
    # Its worker froze before the attempt had the row.
    assert ran(task, book.pk, former, 3) == {"skipped": task_id}
    assert status(book) == ("waiting", 0, None)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("no"), ("failed", "ValueError: no")),
        (Retry("later"), ("waiting", "")),
        (Reject("no", requeue=False), ("dead", "Reject")),
        (Reject("later", requeue=True), ("waiting", "")),
        (Ignore("me"), ("failed", "Ignore: me")),
        (KeyError("again"), ("waiting", "")),
    ],
)
def test_what_an_exception_makes_of_the_row(
    book: Any, make: Any, error: Exception, expected: tuple[str, str]
) -> None:
    def body(task: Any) -> None:
        raise error

    task = make(body, autoretry_for=(KeyError,))
    task_id = task.delay(book.pk).id
    raised = Retry if isinstance(error, KeyError) else type(error)
    with pytest.raises(raised):
        ran(task, book.pk, task_id)
    said = status(book)
    assert said[0] == expected[0]
    assert book.task_error.startswith(expected[1])
    assert (book.task_seen_at is None) is (said[0] != "waiting")
    # And the next attempt has it: of a retry, or a replay.
    with pytest.raises(raised):
        ran(task, book.pk, task_id, 2)
    assert status(book)[1] == 2


@pytest.mark.parametrize("value", [object(), float("nan"), "a\0b", {1, 2}])
def test_a_result_that_no_column_holds_is_no_failure(book: Any, make: Any, value: Any) -> None:
    task = make(lambda task: value)
    assert ran(task, book.pk, task.delay(book.pk).id) is value
    assert status(book)[0] == "succeeded"
    assert book.task_result is None


# -- effects


def test_an_effect_without_a_name_ends_the_task(book: Any, make: Any) -> None:
    class Killed(BaseException):
        pass

    def body(task: Any) -> None:
        with task.effect() as effect:
            book.cents += 5
            book.save(update_fields=["cents"])
            effect.result = "booked"
        raise Killed

    task = make(body)
    task_id = task.delay(book.pk).id
    with pytest.raises(Killed):
        ran(task, book.pk, task_id)
    assert status(book)[0] == "succeeded"
    assert ran(task, book.pk, task_id, 2) == "booked"
    assert book.cents == 5
    # A task that is published anew is a new one.
    with pytest.raises(Killed):
        ran(task, book.pk, task.delay(book.pk).id)
    assert book.cents == 10


@pytest.mark.parametrize("is_within", [True, False])
def test_what_fails_within_an_effect_is_undone_and_after_it_is_not(
    book: Any, make: Any, is_within: bool
) -> None:
    def body(task: Any) -> None:
        with task.effect():
            write(task, pages=7)
            if is_within:
                raise KeyError
        raise KeyError

    task = make(body)
    with pytest.raises(KeyError):
        ran(task, book.pk, task.delay(book.pk).id)
    assert status(book) == (("failed", 1, None) if is_within else ("succeeded", 1, 7))


def test_named_effects_are_steps(book: Any, make: Any) -> None:
    done: list[str] = []

    def body(task: Any) -> Any:
        for name in ("one", "two"):
            with task.effect(name) as effect:
                if effect.is_first:
                    done.append(name)
                    effect.result = len(done)
            if name == "one" and task.attempt == 1:
                raise KeyboardInterrupt
        return effect.result

    task = make(body)
    task_id = task.delay(book.pk).id
    with pytest.raises(KeyboardInterrupt):
        ran(task, book.pk, task_id)
    assert status(book)[0] == "running"
    assert ran(task, book.pk, task_id, 2) == 2
    assert done == ["one", "two"]


@pytest.mark.parametrize(
    ("names", "said", "left"),
    [
        # A step that does not ask whether it is the first.
        (("charge",), r"if effect\.is_first", ("failed", 1, None)),
        (("", ""), "name them", ("succeeded", 1, 7)),
    ],
)
def test_effects_that_could_be_twice_are_refused(
    book: Any, make: Any, names: Any, said: str, left: Any
) -> None:
    def body(task: Any) -> Any:
        for name in names:
            with task.effect(name):
                write(task, pages=7)

    task = make(body)
    with pytest.raises(ConfigurationError, match=said):
        ran(task, book.pk, task.delay(book.pk).id)
    assert status(book) == left


# -- the row in the user's hands


def test_a_copy_that_was_read_before_sets_nothing_back(book: Any, make: Any) -> None:
    task = make()
    ran(task, book.pk, task.delay(book.pk).id)
    # `book` was read before any of it.
    book.title = "z"
    book.save()
    type(book).objects.update_or_create(pk=book.pk, defaults={"cents": 3})
    assert status(book)[0] == "succeeded"
    assert (book.title, book.cents) == ("z", 3)
    book.task_status = "waiting"
    book.save(update_fields=["task_status"])
    assert status(book)[0] == "succeeded"


def test_direct_and_eager_calls_take_the_row(book: Any, make: Any) -> None:
    def body(task: Any) -> int:
        with task.effect():
            write(task, pages=(task.row.pages or 0) + 1)
        return int(task.row.pages)

    task = make(body)
    assert task(book.pk) == 1
    assert task.apply((book.pk,)).get() == 2
    task.app.conf.task_always_eager = True
    with transaction.atomic():
        assert task.delay(book.pk).get() == 3
    assert status(book) == ("succeeded", 1, 3)
    with pytest.raises(ConfigurationError, match="only while its body runs"):
        _ = task.row


def test_a_task_without_self_has_its_row_too(book: Any, celery_project: Celery) -> None:
    @celery_project.task(base=RowTask, shared=False, row_model="shelf.Book")
    def plain(book_id: int, by: int = 1) -> int:
        assert status(book)[0] == "running"
        return by

    assert plain(book.pk) == 1
    assert plain(book_id=book.pk, by=2) == 2
    assert status(book)[0] == "succeeded"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"row_model": None}, "row_model=None"),
        ({"row_model": "shelf.Shelf"}, "derived from TaskRow"),
        ({"row_model": "shelf.Bok"}, "Bok"),
        ({"row_model": "shelf.Atlas"}, "derived from TaskRow"),
        ({"if_open": "wait"}, "'replace', 'keep'"),
        ({"on_conflict": "skip", "object_id": "book_id"}, "on_conflict='skip'"),
        ({"unique": "queued", "object_id": "book_id"}, "if_open"),
    ],
)
def test_options_that_cannot_work_are_refused(
    make: Any, options: dict[str, Any], said: str, django_project: None
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        make(**options).name  # noqa: B018


def test_arguments_that_nobody_would_know_are_refused(celery_project: Celery) -> None:
    @celery_project.task(base=RowTask, shared=False, row_model="shelf.Book")
    def by(book_id: int, by: int) -> None: ...

    with pytest.raises(ConfigurationError, match="others need a default"):
        celery_project.finalize()


# -- the admin of rows, by the block of the guide, and the desk's link back to the row


@pytest.fixture
def site(django_project: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    shop = ModuleType("shop.models")
    shop.Order = Book  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "shop", ModuleType("shop"))
    monkeypatch.setitem(sys.modules, "shop.models", shop)
    exec(Page("guides/rows.rst").block("class OrderAdmin").text, {})
    clear()
    yield
    admin.site.unregister(Book)
    clear()


def clear() -> None:
    """Let the addresses be made anew."""
    clear_url_caches()
    sys.modules.pop("tests.contrib.urls", None)


def test_the_row_shows_its_task_to_who_may_see_it(
    book: Any, make: Any, site: None, log_in: Any
) -> None:
    task_id = make().delay(book.pk).id
    listed = log_in(is_superuser=True).get("/admin/shelf/book/?task_status=waiting")
    assert "Waiting" in listed.content.decode()

    page = log_in(is_superuser=True).get(f"/admin/shelf/book/{book.pk}/change/").content.decode()
    address = f"/admin/celery_reliable/deadletter/tasks/task/{task_id}/"
    assert f'<a href="{address}">{task_id}</a>' in page
    desk = log_in(is_superuser=True).get(address).content.decode()
    assert f'<a href="/admin/shelf/book/{book.pk}/change/" id="desk-to-row">' in desk

    # Who may not see the desk sees the id alone, and who may not see books no link to them.
    stranger = User.objects.create(username="editor", is_staff=True)
    stranger.user_permissions.set(Permission.objects.filter(codename="view_book"))
    client = Client()
    client.force_login(stranger)
    page = client.get(f"/admin/shelf/book/{book.pk}/change/").content.decode()
    assert task_id in page
    assert address not in page
    stranger.delete()
    assert "desk-to-row" not in log_in("view").get(address).content.decode()


def test_what_is_late_and_what_is_dead_is_found(
    book: Any, make: Any, site: None, log_in: Any
) -> None:
    rows = type(book).objects
    make().delay(book.pk)
    dead = rows.create(title="dead", task_status="dead", task_id="x")
    rows.create(title="no task")
    client = log_in(is_superuser=True)

    def listed(query: str) -> set[int]:
        shown = client.get(f"/admin/shelf/book/?{query}").content.decode()
        return {int(one) for one in re.findall(r"/admin/shelf/book/(\d+)/change/", shown)}

    assert listed("task_begins=late") == set()
    rows.filter(pk=book.pk).update(task_seen_at=Now() - timedelta(seconds=61))
    assert listed("task_begins=late") == {book.pk}
    assert listed("task_status=dead") == {dead.pk}
    rows.exclude(pk=book.pk).delete()

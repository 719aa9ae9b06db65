"""What an operator is told of rows with open tasks: by the doctor, and by metrics."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import prometheus_client
import pytest
from celery import Celery
from click.testing import CliRunner
from django.core.checks import run_checks
from django.db import DatabaseError, connection, connections
from django.test.utils import CaptureQueriesContext

from celery_reliable.app import reliable_of
from celery_reliable.contrib.django.checks import SERVER_TAG
from celery_reliable.operations import registry_of
from celery_reliable.operations.cli import reliable
from tests.contrib.test_django_rows import book, make, ran
from tests.contrib.test_django_rows_seen_to import break_off, committed_only, forget, make_running

__all__ = ["book", "make"]


@pytest.fixture
def task(make: Any, celery_project: Celery) -> Iterator[Any]:
    yield make(lambda task: None)
    reliable_of(celery_project).close()


@pytest.fixture
def another(book: Any) -> Any:
    return type(book).objects.create(title="b")


def samples(app: Celery, *, rows: bool = True) -> dict[tuple[str, ...], float]:
    """What a scrape says of rows: the metric and its labels -> its value."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in registry_of(app, rows=rows).collect()
        for sample in family.samples
        if sample.name.startswith("reliable_rows")
    }


def told(app: Celery) -> list[str]:
    """What the checks of a deployment say of rows."""
    found = run_checks(tags=[SERVER_TAG], include_deployment_checks=True)
    return [one.msg for one in found if one.id == "celery_reliable.W033"]


def test_a_scrape_counts_rows_whose_task_is_open(book: Any, another: Any, task: Any) -> None:
    counted = {
        ("reliable_rows_up",): 1,
        ("reliable_rows", "shelf.Book", "waiting"): 0,
        ("reliable_rows", "shelf.Book", "running"): 0,
        ("reliable_rows_unseen", "shelf.Book"): 0,
    }
    assert samples(task.app) == counted
    task_id = task.delay(book.pk).id
    make_running(task, book, task_id, break_off)
    committed_only(task, another)
    counted["reliable_rows", "shelf.Book", "waiting"] = 1
    counted["reliable_rows", "shelf.Book", "running"] = 1
    assert samples(task.app) == counted
    forget(another, 601)
    counted["reliable_rows_unseen", "shelf.Book"] = 1
    assert samples(task.app) == counted
    # A time in the future is no sign that somebody has looked.
    forget(book, -601)
    counted["reliable_rows_unseen", "shelf.Book"] = 2
    assert samples(task.app) == counted
    # What has ended is not open.
    ran(task, book.pk, task_id, 2)
    forget(book, 601)
    counted["reliable_rows", "shelf.Book", "running"] = 0
    counted["reliable_rows_unseen", "shelf.Book"] = 1
    assert samples(task.app) == counted


def test_a_scrape_asks_no_database_unless_it_is_told_to(book: Any, task: Any) -> None:
    committed_only(task, book)
    forget(book, 601)
    with CaptureQueriesContext(connection) as asked:
        assert samples(task.app, rows=False) == {}
        assert len(asked) == 0
        samples(task.app)
        queries = [one["sql"] for one in asked.captured_queries]
    (query,) = [one for one in queries if one not in ("BEGIN", "COMMIT")]
    assert "LIMIT 10000" in query
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {query}")
        plan = " ".join(str(row[-1]) for row in cursor.fetchall())
    assert "USING INDEX shelf_book_task_seen_at_" in plan
    assert "TEMP B-TREE" not in plan


def test_the_command_counts_rows_when_it_is_told_to(
    book: Any, task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[Any] = []

    def serve(port: int, addr: str, registry: Any) -> Any:
        served.append({one.name for one in registry.collect()})
        raise OSError(98, "Address already in use")

    monkeypatch.setattr(prometheus_client, "start_http_server", serve)
    for options in ([], ["--rows"]):
        CliRunner().invoke(reliable, ["metrics", *options], obj=SimpleNamespace(app=task.app))
    without, with_rows = served
    assert with_rows - without == {"reliable_rows_up", "reliable_rows", "reliable_rows_unseen"}


def test_of_very_many_rows_the_first_are_counted(
    book: Any, another: Any, task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from celery_reliable.contrib.django.rows import counting

    monkeypatch.setattr(counting, "MOST_ROWS", 1)
    committed_only(task, book)
    committed_only(task, another)
    forget(another, 601)
    (one,) = counting.open_rows()
    assert (one.waiting, one.unseen, one.is_all) == (1, 1, False)


def test_a_database_that_cannot_be_asked_is_told(
    book: Any, task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from celery_reliable.contrib.django.rows import counting

    def fail(*_: Any) -> None:
        raise DatabaseError("no")

    monkeypatch.setattr(counting, "_counted", fail)
    assert samples(task.app) == {("reliable_rows_up",): 0}
    found = run_checks(tags=[SERVER_TAG], include_deployment_checks=True)
    (said,) = [one.msg for one in found if "Rows with tasks could" in one.msg]
    assert said.endswith("no.")
    # Before the first migration there is nothing to ask for.
    monkeypatch.setattr(counting, "_has_table", lambda place: False)
    assert samples(task.app) == {("reliable_rows_up",): 1}


def test_a_thread_that_scrapes_leaves_no_connection(
    book: Any, task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[int] = []
    wrapper = type(connections["default"])
    close = wrapper.close

    def note(self: Any) -> None:
        closed.append(threading.get_ident())
        close(self)

    monkeypatch.setattr(wrapper, "close", note)
    # This thread's is its own.
    samples(task.app)
    assert closed == []
    thread = threading.Thread(target=samples, args=(task.app,))
    thread.start()
    thread.join(20)
    assert closed == [thread.ident]


def test_the_doctor_tells_of_rows_that_nobody_looks_after(book: Any, task: Any) -> None:
    committed_only(task, book)
    assert told(task.app) == []
    forget(book, 601)
    (said,) = told(task.app)
    assert "at 1 of the rows of shelf.Book" in said
    assert "no such task" not in said
    # A plain check asks no database.
    assert not [one for one in run_checks() if one.id == "celery_reliable.W033"]


def test_the_doctor_names_tasks_that_there_are_not(book: Any, task: Any) -> None:
    from celery_reliable.contrib.django.rows.places import RowPlace

    RowPlace(type(book), book.pk).ask("shelf.gone", "an-id", is_new=True, keeps=False)
    forget(book, 601)
    (said,) = told(task.app)
    assert "no such task with rows: shelf.gone." in said

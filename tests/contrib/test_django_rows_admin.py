"""The admin of rows with tasks, by the block of the guide, and the desk's link back to the row."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from django.contrib import admin

from tests.contrib.test_django_rows import book, make
from tests.docs.blocks import Page

__all__ = ["book", "make"]


@pytest.fixture
def site(django_project: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from tests.contrib.shelf.models import Book

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
    from django.urls import clear_url_caches

    clear_url_caches()
    sys.modules.pop("tests.contrib.urls", None)


def test_the_row_shows_its_task_to_who_may_see_it(
    book: Any, make: Any, site: None, log_in: Any
) -> None:
    from django.contrib.auth.models import Permission, User
    from django.test import Client

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
    from datetime import timedelta

    from django.db.models.functions import Now

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

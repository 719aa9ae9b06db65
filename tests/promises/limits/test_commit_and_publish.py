"""A commit and a publication are two steps.

A process that is killed right after the commit publishes nothing. The row of a ``RowTask`` says so,
and the task ``celery_reliable.rows`` publishes it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.django_project import SETTINGS, DjangoProject
from tests.support.promises import promise
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

FILES = {
    "shop/__init__.py": "",
    "shop/models.py": """
        from django.db import models
        from celery_reliable.contrib.django.rows import TaskRow

        class Order(TaskRow):
            pass

        class Booking(models.Model):
            order_number = models.IntegerField()
    """,
    "shop/tasks.py": """
        from celery import shared_task
        from celery_reliable.contrib.django.rows import RowTask
        from shop.models import Booking

        @shared_task(bind=True, base=RowTask, row_model="shop.Order")
        def bill(self, order_id):
            with self.effect():
                Booking.objects.create(order_number=order_id)
    """,
    "publish.py": """
        import os, signal
        import django
        django.setup()
        from django.db import transaction
        from shop.models import Order
        from shop.tasks import bill

        with transaction.atomic():
            order = Order.objects.create(pk=1)
            # Before the publication, which is a callback too.
            transaction.on_commit(lambda: os.kill(os.getpid(), signal.SIGKILL))
            bill.delay(order.pk)
    """,
}


@pytest.fixture
def shop(tmp_path: Path, redis_server: RedisServer) -> Iterator[DjangoProject]:
    """A project with a shop whose orders are billed by tasks."""
    url = redis_server.url()
    more = f"""
    INSTALLED_APPS = ["celery_reliable.contrib.django", "shop"]
    CELERY_BROKER_URL = CELERY_RESULT_BACKEND = {url!r}
    """
    settings = SETTINGS.format(app="shop", name=str(tmp_path / "db.sqlite3")) + more
    made = DjangoProject(tmp_path, {**FILES, "proj/settings.py": settings})
    made.migrate()
    yield made
    made.close()


def asked(shop: DjangoProject, query: str) -> list[tuple[Any, ...]]:
    """What the database says, asked without the project."""
    with closing(sqlite3.connect(shop.folder / "db.sqlite3", timeout=60)) as database:
        return database.execute(query).fetchall()


@promise("commit-and-publish")
def test_a_row_whose_publisher_was_killed_is_found_and_its_task_runs_once(
    shop: DjangoProject, redis_server: RedisServer
) -> None:
    """The row says that its task is due, and the effect happens once."""
    statuses = "select id, task_status from shop_order"
    with pytest.raises(AssertionError):
        shop.ran("publish.py")
    assert asked(shop, statuses) == [(1, "waiting")]
    with redis_server.client() as client:
        assert not client.llen("celery")

    shop.worker("one")
    shop.run(
        "from celery_reliable.contrib.django.tasks import rows\nrows.delay(older_than_seconds=0)"
    )

    wait_for(lambda: asked(shop, statuses) == [(1, "succeeded")], 90, "it ran")
    assert asked(shop, "select order_number from shop_booking") == [(1,)]

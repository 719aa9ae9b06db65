"""Rows that are published again under a key that an earlier task had."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.integration.full_scale.test_rows import FILES
from tests.support.django_project import DjangoProject
from tests.support.promises import promise
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full

TASKS = """
    from celery import shared_task
    from celery_reliable.contrib.django.rows import RowTask
    from shop.models import Booking

    @shared_task(bind=True, base=RowTask, row_model="shop.Order")
    def bill(self, order_id):
        if self.row.kills:
            raise ValueError("no such account")
        with self.effect() as effect:
            Booking.objects.create(order_number=order_id)
            effect.result = Booking.objects.filter(order_number=order_id).count()
"""
PUBLISH = """
    import os, signal, sys
    import django
    django.setup()
    from django.db import transaction
    from shop.models import Order
    from shop.tasks import bill

    for order in map(int, sys.argv[1:]):
        pid = os.fork()
        if not pid:
            with transaction.atomic():
                Order.objects.filter(pk=order).update(kills={})
                # Before the publication, which is a callback too.
                transaction.on_commit(lambda: os.kill(os.getpid(), signal.SIGKILL))
                bill.apply_async((order,), task_id=f"inv-{order}")
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(status), status
"""


class Shop(DjangoProject):
    """Orders, and how often each was booked."""

    def __init__(self, folder: Path, server: RedisServer) -> None:
        files = {**FILES, "shop/tasks.py": TASKS, "publish.py": PUBLISH}
        super().__init__(folder, files, environ={"REDIS": server.url()})
        self.migrate()

    def ask(self, query: str) -> dict[int, Any]:
        """What the database says, asked without the project."""
        with closing(sqlite3.connect(self.folder / "db.sqlite3", timeout=60)) as database:
            return dict(database.execute(query).fetchall())

    def statuses(self) -> dict[int, str]:
        """The status of each order."""
        return self.ask("select id, task_status from shop_order")

    def bookings(self) -> dict[int, int]:
        """How many times each order was booked."""
        return self.ask("select order_number, count(*) from shop_booking group by order_number")

    def wait_for(self, statuses: dict[int, str]) -> None:
        """Wait until the orders are like that."""
        wait_for(lambda: statuses.items() <= self.statuses().items(), 90, f"{statuses}")

    def create(self, first: int, last: int, **columns: Any) -> None:
        """Make orders."""
        self.run(
            "from shop.models import Order\n"
            f"for one in range({first}, {last + 1}):\n"
            f"    Order.objects.create(pk=one, **{columns!r})"
        )

    def publish(self, *orders: int, **options: Any) -> None:
        """Publish orders under their keys."""
        self.run(
            "from shop.tasks import bill\n"
            f"for one in {orders}:\n"
            f"    bill.apply_async((one,), task_id=f'inv-{{one}}', **{options!r})"
        )

    def look_after(self) -> None:
        """Do once what the beat schedule does each minute."""
        self.run(
            "from celery_reliable.contrib.django.tasks import rows\n"
            "rows.delay(older_than_seconds=0)"
        )

    def revoke(self, order: int) -> None:
        """Call off the task of an order."""
        self.ran("-m", "celery", "-A", "proj", "reliable", "revoke", "--yes", f"inv-{order}")


@pytest.fixture
def shop(tmp_path: Path, redis_server: RedisServer) -> Iterator[Shop]:
    made = Shop(tmp_path, redis_server)
    yield made
    made.close()


@promise("commit-and-publish")
def test_a_row_published_again_under_its_key_runs_again(shop: Shop) -> None:
    succeeded, failed, revoked, not_told = 1, 2, 3, 4
    shop.worker("one")
    shop.create(1, 4)
    shop.run(f"from shop.models import Order\nOrder.objects.filter(pk={failed}).update(kills=[1])")
    shop.publish(succeeded, failed)
    shop.publish(revoked, not_told, countdown=3600)
    shop.revoke(revoked)
    shop.look_after()
    shop.wait_for({succeeded: "succeeded", failed: "failed", revoked: "revoked"})
    # Nobody has told this row yet.
    shop.revoke(not_told)
    assert shop.bookings() == {succeeded: 1}

    shop.ran("publish.py", *map(str, (succeeded, failed, revoked, not_told)))
    assert set(shop.statuses().values()) == {"waiting"}

    shop.look_after()
    shop.wait_for(dict.fromkeys((1, 2, 3, 4), "succeeded"))
    assert shop.bookings() == {succeeded: 2, failed: 1, revoked: 1, not_told: 1}

"""The figures of rows with tasks in a Django project: effects of tasks whose processes are killed
around the commit, and rows whose publishers are.  Small unless `--full` is given; `-s` shows them.

On PostgreSQL too, at full scale, where one is installed.
"""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from benchmarks.arena.servers import Postgres, why_no_postgres
from tests.conftest import Scale
from tests.support.django_project import DjangoProject
from tests.support.promises import promise
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

FILES = {
    "proj/settings.py": """
        import os
        SECRET_KEY = "only for tests"
        USE_TZ = True
        INSTALLED_APPS = ["celery_reliable.contrib.django", "shop"]
        if "POSTGRES" in os.environ:
            words = dict(word.split("=") for word in os.environ["POSTGRES"].split())
            DATABASES = {"default": {"ENGINE": "django.db.backends.postgresql",
                "HOST": words["host"], "PORT": words["port"], "USER": words["user"],
                "NAME": words["dbname"]}}
        else:
            DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3",
                "NAME": os.environ["FOLDER"] + "/db.sqlite3",
                "OPTIONS": {"timeout": 60, "transaction_mode": "IMMEDIATE",
                            "init_command": "PRAGMA journal_mode=WAL"}}}
            import django
            if django.VERSION < (5, 1):
                DATABASES["default"]["OPTIONS"] = {"timeout": 60}
        DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
        CELERY_BROKER_URL = CELERY_RESULT_BACKEND = os.environ["REDIS"]
        CELERY_WORKER_PREFETCH_MULTIPLIER = 1
        CELERY_RELIABLE = {"SWEEP_SECONDS": 1, "MAX_LOSSES": 9}
        CELERY_BEAT_SCHEDULE = {"rows": {"task": "celery_reliable.rows", "schedule": 60.0}}
    """,
    "shop/__init__.py": "",
    "shop/models.py": """
        from django.db import models
        from celery_reliable.contrib.django.rows import TaskRow

        class Order(TaskRow):
            # Where the process that bills it kills itself, by the attempt.
            kills = models.JSONField(default=dict)

        class Booking(models.Model):
            # What the test counts: the effect.  Nothing else knows this table.
            order_number = models.IntegerField()
    """,
    "shop/tasks.py": """
        import os, signal
        from celery import shared_task
        from celery_reliable.contrib.django.rows import RowTask
        from shop.models import Booking

        def die(where):
            with open(os.environ["FOLDER"] + "/kills", "a") as file:
                file.write(where + "\\n")
            os.kill(os.getpid(), signal.SIGKILL)

        @shared_task(bind=True, base=RowTask, row_model="shop.Order")
        def bill(self, order_id):
            where = self.row.kills.get(str(self.attempt))
            with self.effect():
                Booking.objects.create(order_number=order_id)
                if where == "before":
                    die(where)
            if where == "after":
                die(where)
            return order_id
    """,
    # Publishes orders, each in a process of its own, of which some kill themselves between the
    # commit and the publication.
    "publish.py": """
        import os, signal, sys
        import django
        django.setup()
        from django.db import transaction
        from shop.models import Order
        from shop.tasks import bill

        def publish(kills, is_killed):
            with transaction.atomic():
                order = Order.objects.create(kills=kills)
                if is_killed:
                    # Before the publication, which is a callback too.
                    transaction.on_commit(lambda: os.kill(os.getpid(), signal.SIGKILL))
                bill.delay(order.pk)

        count, n_killed = int(sys.argv[1]), int(sys.argv[2])
        for number in range(n_killed):
            pid = os.fork()
            if not pid:
                publish({}, True)
                os._exit(9)
            _, status = os.waitpid(pid, 0)
            assert os.WIFSIGNALED(status), status
        for number in range(count):
            # By turns: after the commit; before it and then after it; not at all.
            publish([{"1": "after"}, {"1": "before", "2": "after"}, {}][number % 3], False)
    """,
}


class Shop(DjangoProject):
    """The project, with its database and its Redis."""

    def __init__(self, folder: Path, server: RedisServer, postgres: Postgres | None) -> None:
        self.postgres = postgres
        super().__init__(
            folder,
            FILES,
            environ={
                "REDIS": server.url(),
                **({"POSTGRES": postgres.url} if postgres else {}),
            },
        )
        self.migrate()

    def publish(self, count: int, n_killed: int) -> None:
        """Publish orders."""
        self.ran("publish.py", str(count), str(n_killed))

    def statuses(self) -> Counter[str]:
        """How many rows have which status."""
        return Counter(self._column("select task_status from shop_order"))

    def bookings(self) -> Counter[int]:
        """How many times each order was booked."""
        return Counter(self._column("select order_number from shop_booking"))

    def _column(self, query: str) -> list[Any]:
        """What the database says, asked without the project."""
        if self.postgres is None:
            database = sqlite3.connect(self.folder / "db.sqlite3", timeout=60)
        else:
            import psycopg

            database = psycopg.connect(self.postgres.url)
        with closing(database):
            return [value for (value,) in database.execute(query).fetchall()]

    def kills(self) -> Counter[str]:
        """Where tasks killed their processes."""
        path = self.folder / "kills"
        return Counter(path.read_text().split() if path.exists() else ())


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "database" in metafunc.fixturenames:
        databases = ["sqlite"]
        if metafunc.config.getoption("full") and not why_no_postgres() and find_spec("psycopg"):
            databases.append("postgres")
        metafunc.parametrize("database", databases)


@pytest.fixture
def shop(tmp_path: Path, redis_server: RedisServer, database: str) -> Iterator[Shop]:
    with ExitStack() as stack:
        postgres = None
        if database == "postgres":
            # The folders of pytest are closed to the user that PostgreSQL wants to be.
            folder = Path(stack.enter_context(TemporaryDirectory())) / "cluster"
            folder.mkdir()
            postgres = Postgres(folder)
            postgres.start()
            stack.callback(postgres.stop)
        yield Shop(tmp_path, redis_server, postgres)


@promise("commit-and-publish")
def test_effects_are_as_many_as_rows_whatever_is_killed(
    shop: Shop, scale: Scale, database: str
) -> None:
    # Each second kill-able order is killed twice: 500 kills are of 500 orders, and 200 more were
    # never published.
    count, n_killed = scale.of(full=(501, 200), small=(6, 3))
    began = time.monotonic()
    # It looks after its dead processes once a second.
    worker = shop.worker("one", scale.of(full=8, small=3))
    try:
        shop.publish(count, n_killed)
        worker.wait_until_ready()
        n_published = time.monotonic() - began
        wait_for(
            lambda: shop.statuses()["succeeded"] == count,
            scale.of(full=1500, small=60),
            "each order that was published",
        )
        # Nobody has published these.
        assert shop.statuses()["waiting"] == n_killed
        shop.run(
            "from celery_reliable.contrib.django.tasks import rows\n"
            "rows.delay(older_than_seconds=0)"
        )
        wait_for(
            lambda: shop.statuses()["succeeded"] == count + n_killed,
            scale.of(full=900, small=60),
            "each order that was committed",
        )
    finally:
        worker.end()
    third = count // 3
    assert shop.kills() == {"after": 2 * third, "before": third}
    booked = shop.bookings()
    assert len(booked) == count + n_killed
    assert set(booked.values()) == {1}
    print(
        f"\n{database}: {sum(shop.kills().values())} kills around the commit of {count} effects, "
        f"{n_killed} between commit and publication: {sum(booked.values())} effects of "
        f"{count + n_killed} rows, {time.monotonic() - began:.0f} s "
        f"({n_published:.0f} s of them publishing)"
    )

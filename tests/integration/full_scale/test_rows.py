"""The figures of rows with tasks in a Django project: effects of tasks whose processes are killed
around the commit, and rows whose publishers are.  Small unless `--full` is given; `-s` shows them.
And frozen processes that wake up: what they write into their rows is refused.

On PostgreSQL too, where one is installed, and psycopg is.
"""

from __future__ import annotations

import os
import signal
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

pytestmark = pytest.mark.full

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
        CELERY_RELIABLE = {"SWEEP_SECONDS": 1, "MAX_LOSSES": 9,
                           "LEASE_SECONDS": float(os.environ.get("LEASE", 10))}
        CELERY_BEAT_SCHEDULE = {"rows": {"task": "celery_reliable.rows", "schedule": 60.0}}
    """,
    "shop/__init__.py": "",
    "shop/models.py": """
        from django.db import models
        from celery_reliable.contrib.django.rows import TaskRow

        class Order(TaskRow):
            # Where the process that bills it kills itself, by the attempt.
            kills = models.JSONField(default=dict)
            # The process that delivers it, written by an update and by `save`.
            updated_by = models.IntegerField(default=0)
            saved_by = models.IntegerField(default=0)

        class Booking(models.Model):
            # What the test counts: the effect.  Nothing else knows this table.
            order_number = models.IntegerField()
            process = models.IntegerField(default=0)
    """,
    "shop/tasks.py": """
        import os, signal, time
        from celery import shared_task
        from celery_reliable.contrib.django.rows import RowTaken, RowTask
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

        def note(task, what):
            host = task.request.hostname.partition("@")[0]
            with open(os.environ["FOLDER"] + "/notes", "a") as file:
                file.write(f"{task.row.pk} {host} {os.getpid()} {what}\\n")

        def wait_at_gate(task):
            note(task, "begun")
            host = task.request.hostname.partition("@")[0]
            while not os.path.exists(f"{os.environ['FOLDER']}/gate-{task.row.pk}-{host}"):
                time.sleep(0.02)

        def update(task):
            task.write_row(updated_by=os.getpid())

        def save(task):
            task.row.saved_by = os.getpid()
            task.row.save()

        def effect(task):
            with task.effect():
                Booking.objects.create(order_number=task.row.pk, process=os.getpid())

        @shared_task(bind=True, base=RowTask, row_model="shop.Order")
        def deliver(self, order_id):
            wait_at_gate(self)
            refused = None
            for write in (update, save, effect):
                try:
                    write(self)
                except RowTaken as exc:
                    refused = exc
                    note(self, f"{write.__name__} refused")
                else:
                    note(self, f"{write.__name__} written")
            if refused:
                raise refused

        @shared_task(bind=True, base=RowTask, row_model="shop.Order")
        def deliver_inside(self, order_id):
            with self.effect():
                wait_at_gate(self)
                Booking.objects.create(order_number=order_id, process=os.getpid())
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

    def order(self, number: int) -> tuple[Any, ...]:
        """The status of an order, and which processes have written it."""
        columns = "task_status, updated_by, saved_by"
        (found,) = self.ask(f"select {columns} from shop_order where id = {number}")
        return found

    def deliver(self, task: str, count: int) -> None:
        """Publish orders, numbered from one."""
        self.run(
            "from shop import models, tasks\n"
            f"for number in range(1, {count} + 1):\n"
            f"    tasks.{task}.delay(models.Order.objects.create(pk=number).pk)"
        )

    def notes(self) -> list[tuple[int, str, int, str]]:
        """What tasks have noted: the order, their worker, their process, and what."""
        path = self.folder / "notes"
        lines = path.read_text().splitlines() if path.exists() else []
        split = (line.split(maxsplit=3) for line in lines)
        return [(int(number), worker, int(pid), what) for number, worker, pid, what in split]

    def noted(self, process: int) -> list[str]:
        """What the tasks of a process have noted."""
        return [what for *_, pid, what in self.notes() if pid == process]

    def begun(self, number: int, worker: str) -> int | None:
        """The process of the attempt that has begun there last."""
        found = [
            pid for *key, pid, what in self.notes() if (*key, what) == (number, worker, "begun")
        ]
        return found[-1] if found else None

    def open_gate(self, number: int, worker: str) -> None:
        """Let the attempts of an order go on that run on this worker."""
        (self.folder / f"gate-{number}-{worker}").touch()

    def _column(self, query: str) -> list[Any]:
        return [value for (value,) in self.ask(query)]

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        """What the database says, asked without the project."""
        if self.postgres is None:
            database = sqlite3.connect(self.folder / "db.sqlite3", timeout=60)
        else:
            import psycopg

            database = psycopg.connect(self.postgres.url)
        with closing(database):
            return [tuple(row) for row in database.execute(query).fetchall()]

    def kills(self) -> Counter[str]:
        """Where tasks killed their processes."""
        path = self.folder / "kills"
        return Counter(path.read_text().split() if path.exists() else ())


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> str:
    """Which database the rows are in."""
    if request.param == "postgres":
        missing = why_no_postgres()
        if missing is None and find_spec("psycopg") is None:
            missing = "no psycopg is installed (pip install 'psycopg[binary]')"
        if missing:
            pytest.skip(missing)
    return str(request.param)


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
        made = Shop(tmp_path, redis_server, postgres)
        stack.callback(made.close)
        yield made


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


@promise("late-changes-nothing")
def test_a_frozen_process_that_wakes_up_writes_nothing_into_its_row(shop: Shop) -> None:
    shop.environ["LEASE"] = "4"
    frozen = shop.worker("one")
    shop.deliver("deliver", 2)
    late = [wait_for(lambda n=n: shop.begun(n, "one"), 90, "an attempt") for n in (1, 2)]
    frozen.freeze()
    shop.worker("two")
    # One order has been delivered by another when they wake up, one is being delivered.
    shop.open_gate(1, "two")
    wait_for(lambda: shop.order(1)[0] == "succeeded", 90, "the first order")
    wait_for(lambda: shop.begun(2, "two"), 90, "the second attempt of the second order")
    delivered = shop.order(1)
    assert not set(late) & set(delivered)

    # The processes of the tasks alone, or their worker might end them before they write.
    for number, pid in enumerate(late, 1):
        shop.open_gate(number, "one")
        os.kill(pid, signal.SIGCONT)
    tried = {"begun", "update refused", "save refused", "effect refused"}
    for pid in late:
        wait_for(lambda pid=pid: len(shop.noted(pid)) == len(tried), 90, "what it tried")
        assert set(shop.noted(pid)) == tried
    assert shop.order(1) == delivered
    assert shop.order(2)[1:] == (0, 0)
    assert shop.bookings() == {1: 1}

    frozen.thaw()
    shop.open_gate(2, "two")
    wait_for(lambda: shop.order(2)[0] == "succeeded", 90, "the second order")
    assert not set(late) & set(shop.order(2))
    assert shop.bookings() == {1: 1, 2: 1}
    assert not set(late) & {pid for (pid,) in shop.ask("select process from shop_booking")}

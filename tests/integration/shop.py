"""A Django project with a shop whose orders are rows with tasks, in SQLite or PostgreSQL."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.arena.servers import Postgres
from tests.support.django_project import DjangoProject
from tests.support.redis_server import RedisServer

__all__ = ["Shop"]

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
            task.row.updated_by = os.getpid()
            task.row.save(update_fields=["updated_by"])

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

    def __init__(self, folder: Path, server: RedisServer, postgres: Postgres | None = None) -> None:
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

    def publish_waiting(self) -> None:
        """Publish those whose publishers were killed."""
        self.run(
            "from celery_reliable.contrib.django.tasks import rows\n"
            "rows.delay(older_than_seconds=0)"
        )

    def deliver(self, count: int) -> None:
        """Publish orders, numbered from one."""
        self.run(
            "from shop import models, tasks\n"
            f"for number in range(1, {count} + 1):\n"
            "    tasks.deliver.delay(models.Order.objects.create(pk=number).pk)"
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

"""A Django project that somebody has made of the blocks of pages, with real workers."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from tests.support.processes import REPOSITORY, Worker
from tests.support.waiting import wait_for

__all__ = ["PastedProject"]

#: What every Django project with Celery has, by Celery's own guide.
FILES = {
    "proj/__init__.py": "from proj.celery import app as celery_app\n__all__ = ('celery_app',)\n",
    "proj/celery.py": """
        import os
        from celery import Celery
        from celery.signals import worker_ready
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "proj.settings")
        app = Celery("proj")
        app.config_from_object("django.conf:settings", namespace="CELERY")
        app.autodiscover_tasks()

        @worker_ready.connect
        def tell(**_):
            open(os.environ["READY"], "w").close()
    """,
    "documents/__init__.py": "",
    # Stands for the user's work: it waits until it is let go, and says in which process.
    "documents/checking.py": """
        import os, pathlib, time

        def check(text):
            folder = pathlib.Path(os.environ["FOLDER"])
            with open(folder / f"{text}.pids", "a") as pids:
                pids.write(f"{os.getpid()}\\n")
            until = time.monotonic() + 60
            while not (folder / f"{text}.go").exists() and time.monotonic() < until:
                time.sleep(0.02)
            return {"words": len(text.split())}
    """,
}
SETTINGS = """
    SECRET_KEY = "only for tests"
    USE_TZ = True
    INSTALLED_APPS = ["documents"]
    DATABASES = {{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": {name!r},
                             "OPTIONS": {{"timeout": 20}}}}}}
    DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
    CELERY_BROKER_URL = {url!r}
    CELERY_TASK_IGNORE_RESULT = True
"""
PLAIN_MODEL = """
    from django.db import models

    class Document(models.Model):
        text = models.TextField()
        findings = models.JSONField(null=True)
"""


class PastedProject:
    """The project in a folder; its workers are real and are ended with it."""

    def __init__(self, folder: Path, url: str, *, settings: str, tasks: str, models: str) -> None:
        self.folder = folder
        self.database = str(folder / "db.sqlite3")
        own = textwrap.dedent(SETTINGS).format(name=self.database, url=url)
        contents = {
            **FILES,
            "proj/settings.py": own + settings,
            "documents/tasks.py": tasks,
            "documents/models.py": models or PLAIN_MODEL,
        }
        for name, text in contents.items():
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(textwrap.dedent(text))
        self.environ = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "proj.settings",
            "PYTHONPATH": os.pathsep.join([str(folder), str(REPOSITORY)]),
            "FOLDER": str(folder),
        }
        self.workers: list[Worker] = []
        self.run(
            "from django.core.management import call_command\n"
            "call_command('migrate', run_syncdb=True, verbosity=0)\n"
            "call_command('check', fail_level='WARNING')"
        )

    def run(self, code: str) -> str:
        """Run code in the project, as in its shell."""
        setup = "import django; django.setup()\nfrom documents.models import Document\n"
        ran = subprocess.run(
            [sys.executable, "-c", setup + code],
            cwd=self.folder,
            env=self.environ,
            capture_output=True,
            text=True,
        )
        assert not ran.returncode, ran.stderr
        return ran.stdout

    def rows(self) -> dict[str, dict[str, Any]]:
        """The documents in the database, by their text."""
        with sqlite3.connect(self.database, timeout=20) as database:
            database.row_factory = sqlite3.Row
            found = database.execute("select * from documents_document").fetchall()
        database.close()
        return {
            row["text"]: {**dict(row), "findings": json.loads(row["findings"] or "null")}
            for row in found
        }

    def start_worker(self, name: str) -> Worker:
        """Start a worker, as the reader does."""
        ready = self.folder / f"{name}.ready"
        worker = Worker(
            name,
            app="proj",
            environ={**self.environ, "READY": str(ready)},
            log_path=self.folder / f"{name}.log",
            is_ready=ready.exists,
        )
        self.workers.append(worker)
        worker.wait_until_ready()
        return worker

    def pids(self, text: str) -> list[int]:
        """The processes that have begun to check a document."""
        path = self.folder / f"{text}.pids"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def kill_checker(self, text: str) -> None:
        """SIGKILL to the process that checks a document, once it does; wait for the next one."""
        wait_for(lambda: self.pids(text), 15, f"{text} is checked")
        os.kill(self.pids(text)[-1], signal.SIGKILL)
        wait_for(lambda: len(self.pids(text)) == 2, 15, f"{text} is checked again")

    def let_go(self, text: str) -> None:
        """Let the check of a document end."""
        (self.folder / f"{text}.go").touch()

    def close(self) -> None:
        """End what runs."""
        for worker in self.workers:
            worker.end()

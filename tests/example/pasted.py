"""A Django project that somebody has made of the blocks of pages, with real workers."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import textwrap
from pathlib import Path
from typing import Any

from tests.support.django_project import SETTINGS, DjangoProject
from tests.support.processes import Worker
from tests.support.waiting import wait_for

__all__ = ["PastedProject"]

FILES = {
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
OWN = """
    CELERY_BROKER_URL = {url!r}
    CELERY_TASK_IGNORE_RESULT = True
"""
PLAIN_MODEL = """
    from django.db import models

    class Document(models.Model):
        text = models.TextField()
        findings = models.JSONField(null=True)
"""


class PastedProject(DjangoProject):
    """The project of a reader."""

    def __init__(self, folder: Path, url: str, *, settings: str, tasks: str, models: str) -> None:
        self.database = str(folder / "db.sqlite3")
        own = textwrap.dedent(SETTINGS).format(app="documents", name=self.database)
        super().__init__(
            folder,
            {
                **FILES,
                "proj/settings.py": own + textwrap.dedent(OWN).format(url=url) + settings,
                "documents/tasks.py": tasks,
                "documents/models.py": models or PLAIN_MODEL,
            },
        )
        self.migrate()
        super().run(
            "from django.core.management import call_command\n"
            "call_command('check', fail_level='WARNING')"
        )

    def run(self, code: str) -> str:
        """Run code in the project, as in its shell."""
        return super().run(f"from documents.models import Document\n{code}")

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
        worker = self.worker(name)
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

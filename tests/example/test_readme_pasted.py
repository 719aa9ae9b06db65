"""The first examples do as pasted what is said of them: a Django project, a model, real workers,
real kills.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import textwrap
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.docs.blocks import Page
from tests.support.django_project import SETTINGS, DjangoProject
from tests.support.processes import run_python
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

PAGES = ("README.rst", "concepts.rst", "guides/one-object.rst")
README, CONCEPTS, OBJECTS = map(Page, PAGES)

OF_PAGES = (
    README.block("INSTALLED_APPS").text + CONCEPTS.block("CELERY_BEAT_SCHEDULE", "python").text
)
FIRST_TASK = README.block("document.findings = check(document.text)").text
UNIQUE, BUSY = OBJECTS.block("def index_document").text, OBJECTS.block("def settle_order").text
#: By `test_readme`.
COMMANDS = README.commands()

FILES = {
    "documents/__init__.py": "",
    "documents/checking.py": """
        import held

        def check(text):
            held.run(text)
            return {"words": len(text.split())}
    """,
    "documents/models.py": """
        from django.db import models

        class Document(models.Model):
            text = models.TextField()
            findings = models.JSONField(null=True)
    """,
    "documents/tasks.py": FIRST_TASK,
}
OWN = """
    CELERY_BROKER_URL = {url!r}
    CELERY_TASK_IGNORE_RESULT = True
"""


def test_every_block_is_run_here() -> None:
    assert [page.left() for page in (README, CONCEPTS, OBJECTS)] == [[]] * 3


def test_the_five_minutes_change_the_row_whatever_is_killed(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    database = tmp_path / "db.sqlite3"
    own = textwrap.dedent(SETTINGS).format(app="documents", name=str(database))
    own += textwrap.dedent(OWN).format(url=redis_server.url()) + OF_PAGES
    with closing(DjangoProject(tmp_path, {**FILES, "proj/settings.py": own})) as project:
        project.type("python manage.py migrate --run-syncdb --verbosity 0")
        project.type("python manage.py check --fail-level WARNING")
        quiet, child, worker = texts = ("quiet", "a killed child", "a killed worker")
        project.hold(child, worker)
        first = project.worker("one")
        first.wait_until_ready()
        project.python(
            "from documents.models import Document\n"
            "from documents.tasks import check_document\n"
            f"for text in {(quiet, child)!r}:\n"
            "    check_document.delay(Document.objects.create(text=text).pk)"
        )
        os.kill(project.wait_for_runs(child), signal.SIGKILL)
        project.wait_for_runs(child, 2)
        project.let_go(child)
        project.python(
            f"pk = Document.objects.create(text={worker!r}).pk\n"
            "check_document.delay(pk)\n"
            # A second call while it is being checked is checked too, and not beside it.
            "check_document.delay_on_commit(document_id=pk)"
        )
        project.wait_for_runs(worker)
        first.kill_group()
        project.worker("two").wait_until_ready()
        project.wait_for_runs(worker, 2)
        project.let_go(worker)

        def findings() -> list[Any]:
            with closing(sqlite3.connect(database, timeout=20)) as rows:
                found = dict(rows.execute("select text, findings from documents_document"))
            return [json.loads(found[text] or "null") for text in texts]

        wait_for(lambda: findings() == [{"words": 1}, {"words": 3}, {"words": 3}], 20, "the rows")
        project.wait_for_runs(worker, 3)


def test_the_other_blocks_run(redis_server: RedisServer, tmp_path: Path) -> None:
    source = (
        f"from celery import Celery\nCelery('proj', broker={redis_server.url()!r})\n"
        f"{BUSY}\nsettle_order.delay(1, 2)\n"
        f"from celery import shared_task\nfrom celery_reliable import ReliableTask\n{UNIQUE}"
    )
    run_python("-c", source, folder=tmp_path)
    assert len(redis_server.client().keys("{reliable:0}:task:*")) == 2

"""The first examples do as pasted what is said of them: a Django project, a model, real workers,
real kills.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import Page
from tests.example.pasted import PastedProject
from tests.support.processes import REPOSITORY
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

PAGES = (
    "README.rst",
    "concepts.rst",
    "guides/one-object.rst",
)
README, CONCEPTS, OBJECTS = map(Page, PAGES)

SETTINGS = (
    README.block("INSTALLED_APPS").text + CONCEPTS.block("CELERY_BEAT_SCHEDULE", "python").text
)
FIRST_TASK = README.block("document.findings = check(document.text)").text
UNIQUE, BUSY = OBJECTS.block("def index_document").text, OBJECTS.block("def settle_order").text
#: By `test_readme`.
COMMANDS = README.commands()

Start = Callable[[str, str], PastedProject]


@pytest.fixture
def start(tmp_path: Path, redis_server: RedisServer) -> Iterator[Start]:
    """Make a project of blocks: `start(tasks, models)`."""
    made = []

    def make(tasks: str, models: str) -> PastedProject:
        project = PastedProject(
            tmp_path, redis_server.url(), settings=SETTINGS, tasks=tasks, models=models
        )
        made.append(project)
        return project

    yield make
    for project in made:
        project.close()


def test_every_block_is_run_here() -> None:
    assert [page.left() for page in (README, CONCEPTS, OBJECTS)] == [[]] * 3


def test_the_five_minutes_change_the_row_whatever_is_killed(start: Start) -> None:
    project = start(FIRST_TASK, "")
    worker = project.start_worker("one")
    texts = ("quiet", "a killed child", "a killed worker")
    project.let_go("quiet")
    project.run(
        "from documents.tasks import check_document\n"
        f"for text in {texts[:2]!r}:\n"
        "    check_document.delay(Document.objects.create(text=text).pk)"
    )
    project.kill_checker("a killed child")
    project.let_go("a killed child")
    project.run(
        "from documents.tasks import check_document\n"
        f"pk = Document.objects.create(text={texts[2]!r}).pk\n"
        "check_document.delay(pk)\n"
        # A second call while it is being checked is checked too, and not beside it.
        "check_document.delay_on_commit(document_id=pk)"
    )
    wait_for(lambda: project.pids("a killed worker"), 15, "it is checked")
    worker.kill_group()
    project.start_worker("two")
    wait_for(lambda: len(project.pids("a killed worker")) == 2, 20, "it is checked elsewhere")
    project.let_go("a killed worker")

    def findings() -> list[object]:
        rows = project.rows()
        return [rows[text]["findings"] for text in texts]

    wait_for(lambda: findings() == [{"words": 1}, {"words": 3}, {"words": 3}], 20, "the rows")
    wait_for(lambda: len(project.pids("a killed worker")) == 3, 20, "the second call")


def test_the_other_blocks_run(redis_server: RedisServer, tmp_path: Path) -> None:
    source = (
        f"from celery import Celery\nCelery('proj', broker={redis_server.url()!r})\n"
        f"{BUSY}\nsettle_order.delay(1, 2)\n"
        f"from celery import shared_task\nfrom celery_reliable import ReliableTask\n{UNIQUE}"
    )
    subprocess.run(
        [sys.executable, "-c", source],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        check=True,
    )
    assert len(redis_server.client().keys("{reliable:0}:task:*")) == 2

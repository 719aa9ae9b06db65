"""In whichever order an app and the package come: nothing is asked of half of it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.processes import REPOSITORY

ASK = """
app.finalize()
import celery_reliable
def body(): ...
own, sweep = app.task(body, name="app.own"), app.tasks["celery_reliable.sweep"]
print(own.is_reliable, isinstance(sweep, celery_reliable.ReliableTask), sweep.name)
"""


@pytest.mark.parametrize(
    "first",
    [
        'app = Celery("proj", task_cls="celery_reliable:ReliableTask")',
        'app = Celery("proj", task_cls="celery_reliable.task:ReliableTask")',
        'class App(Celery):\n    task_cls = "celery_reliable:ReliableTask"\napp = App("proj")',
    ],
)
def test_an_app_may_name_the_base_of_its_tasks(first: str) -> None:
    said = subprocess.run(
        [sys.executable, "-c", f"from celery import Celery\n{first}\n{ASK}"],
        env={"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
    )
    assert (said.stdout, said.stderr) == ("True False celery_reliable.sweep\n", "")


#: An app that is complete, and then the first reliable task, which every app is to have.
SHARED = """
import celery
app = celery.Celery("shop", broker="redis://127.0.0.1:1/0")
app.finalize()
from celery_reliable import ReliableTask
@celery.shared_task(base=ReliableTask, name="shared")
def shared(): ...
print(type(app.tasks["shared"]).is_reliable)
"""


def test_the_first_reliable_task_may_be_a_shared_one_of_an_app_that_is_complete() -> None:
    said = subprocess.run(
        [sys.executable, "-c", SHARED],
        env={"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
    )
    assert (said.stdout, said.returncode) == ("True\n", 0), said.stderr

"""In whichever order an app and the package come: nothing is asked of half of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import REPOSITORY
from tests.support.redis_server import RedisServer

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


#: A web process, which publishes and does nothing else.
PUBLISHING = """
import sys, celery, celery_reliable
app = celery.Celery("shop", broker=sys.argv[1])
@app.task(base=celery_reliable.ReliableTask, name="shop.add")
def add(): ...
app.tasks["shop.add"].delay()
print(*(name for name in sys.modules if name.partition(".")[0] == "celery_reliable"))
"""

#: At most so many modules of the package has a process that only publishes.
_MOST_MODULES = 105


def test_a_process_that_only_publishes_loads_nothing_of_workers_and_operators(
    tmp_path: Path,
) -> None:
    with RedisServer(tmp_path) as server:
        said = subprocess.run(
            [sys.executable, "-c", PUBLISHING, server.url()],
            env={"PYTHONPATH": str(REPOSITORY)},
            capture_output=True,
            text=True,
        )
        assert server.client().llen("celery") == 1, said.stderr

    loaded = said.stdout.split()
    packages = {".".join(name.split(".")[1:2]) for name in loaded}
    assert "publishing" in packages
    assert packages & {"contrib", "doctor", "findings", "operations", "recovery", "worker"} == set()
    assert len(loaded) <= _MOST_MODULES

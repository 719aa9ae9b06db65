"""The package is installed over an older one while workers of that one still run: both consume the
same queues, and keep every promise to each other.
"""

from __future__ import annotations

import io
import re
import signal
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Project, Start
from tests.support.effects import Effects
from tests.support.load import Load
from tests.support.processes import REPOSITORY, Worker
from tests.support.promises import promise
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full

#: The package as it was before.  Each release puts the one before it here; until the first, this is
#: the last commit that changed what is stored or sent (there: the key of the list of unacked
#: hashes).
OLD_COMMIT = "e1eecf6"
SHORT = {"LEASE_SECONDS": 5, "SWEEP_SECONDS": 0.5, "WITNESS_SECONDS": 0.3}

PUBLISH = """
import os, sys
from tests.integration.project.factory import Settings, create_app
app = create_app(Settings.from_environ(os.environ))
for _ in range(int(sys.argv[2])):
    print(app.tasks["project." + sys.argv[1]].apply_async(eval(sys.argv[3])).id, flush=True)
"""

#: Publishes until its input ends; whoever falls behind catches up.
PUBLISH_STEADILY = """
import os, select, sys, time
from tests.integration.project.factory import Settings, create_app
app = create_app(Settings.from_environ(os.environ))
task, per_second = app.tasks["project.work"], float(sys.argv[1])
began_at, count = time.monotonic(), 0
while True:
    ahead = began_at + count / per_second - time.monotonic()
    if select.select([sys.stdin], [], [], max(ahead, 0))[0]:
        break
    print(task.apply_async((0.01,), ignore_result=True).id)
    count += 1
"""
PER_SECOND = 200


@pytest.fixture(scope="module")
def old_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of the older package, with the project of its own tests."""
    archive = subprocess.run(
        ["git", "-C", str(REPOSITORY), "archive", OLD_COMMIT], capture_output=True, check=False
    )
    if archive.returncode:
        pytest.skip(
            f"no older package to run beside: {OLD_COMMIT} is not in this checkout, which has no "
            f"history ({archive.stderr.decode().strip()}). `git fetch --unshallow` gets it."
        )
    folder = tmp_path_factory.mktemp("old")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        # Until 3.11.4 and 3.10.12 Python has no filters.
        safely: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        tar.extractall(folder, **safely)
    # Until the first release both have the number of the next one.
    version = folder / "celery_reliable" / "version.py"
    version.write_text(re.sub(r'(?m)= "[^"]+"$', '= "0.9"', version.read_text("utf-8")))
    return folder


@pytest.fixture
def brief(project: Project) -> Project:
    return project.with_settings(reliable=SHORT)


@pytest.fixture
def start(start_worker: Start, brief: Project, old_tree: Path) -> Start:
    """Start a worker of the old package, or of this one; it is named after that."""

    def start(which: str, project: Project = brief, **options: Any) -> Worker:
        tree = old_tree if which == "old" else REPOSITORY
        return start_worker(which, project=project, tree=tree, **options)

    return start


def publish_old(brief: Project, old_tree: Path, name: str, count: int, *args: object) -> list[str]:
    """Publish tasks from a process that has the old package; return their ids."""
    done = subprocess.run(
        [sys.executable, "-c", PUBLISH, name, str(count), repr(args)],
        cwd=old_tree,
        env={**brief.environ("", {}), "PYTHONPATH": str(old_tree)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def version_of(run: Any) -> str:
    return str(run.worker).partition("@")[0]


@promise("nothing-lost", "never-two")
@pytest.mark.parametrize(("dying", "surviving"), [("old", "new"), ("new", "old")])
def test_what_one_ran_when_it_was_killed_runs_again_in_the_other(
    dying: str, surviving: str, brief: Project, start: Start, old_tree: Path, effects: Effects
) -> None:
    worker = start(dying, concurrency=4)
    ids = publish_old(brief, old_tree, "gate", 2, "open")
    ids += [brief.send("gate", "open").id for _ in range(2)]
    wait_for(lambda: len(effects.runs()) == 4, 30, "all of them run")
    fetched = [*publish_old(brief, old_tree, "work", 3, 0), brief.send("work", 0).id]
    start(surviving, concurrency=4)
    worker.kill_group()

    wait_for(lambda: all(len(effects.runs(one)) == 2 for one in ids), 60, "all run again")
    effects.open_gate("open")
    wait_for(lambda: all(effects.finished(one) for one in ids + fetched), 30, "all are done")

    assert {version_of(effects.runs(one)[1]) for one in ids} == {surviving}
    assert {len(effects.finished(one)) for one in ids + fetched} == {1}
    assert not effects.overlaps()


@contextmanager
def published_by_old(brief: Project, old_tree: Path, per_second: float) -> Iterator[list[str]]:
    """The ids of what a process of the old package publishes meanwhile, known at the end."""
    ids: list[str] = []
    with subprocess.Popen(
        [sys.executable, "-c", PUBLISH_STEADILY, str(per_second)],
        cwd=old_tree,
        env={**brief.environ("", {}), "PYTHONPATH": str(old_tree)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield ids
            ids += process.communicate("that is all", timeout=60)[0].split()
        finally:
            process.kill()
    assert process.returncode == 0


@promise("nothing-lost", "never-two")
def test_a_fleet_is_replaced_one_by_one_under_load_and_back_again(
    brief: Project, start: Start, old_tree: Path, effects: Effects, redis_server: RedisServer
) -> None:
    """200 a second, by publishers of both: nothing is lost or doubled, and nobody is charged.

    Who is charged with a single loss would be a dead letter.  A worker that stops gives back what
    it has taken and not begun, which is no loss, and then its run is a later attempt.
    """
    strict = brief.with_settings(reliable={**SHORT, "MAX_LOSSES": 0})

    def publish() -> str:
        return str(strict.send("work", 0.01, ignore_result=True).id)

    fleet = [start("old", strict, concurrency=3, wait=False) for _ in range(2)]
    for worker in fleet:
        worker.wait_until_ready()
    with (
        published_by_old(strict, old_tree, PER_SECOND / 2) as ids,
        Load(publish, PER_SECOND / 2) as load,
    ):
        for which in ("new", "old"):
            coming = [start(which, strict, concurrency=3, wait=False) for _ in fleet]
            for worker in coming:
                worker.wait_until_ready()
                leaving = fleet.pop(0)
                leaving.signal_main(signal.SIGTERM)
                assert leaving.wait_until_ended() == 0
            fleet += coming
    by_old = len(ids)
    ids += load.ids

    # On a slow machine fewer than are meant.
    assert by_old > 20 < len(load.ids)
    client = redis_server.client()
    wait_for(lambda: not client.keys("{reliable:0}:task:*"), 60, "every record gone")
    runs = effects.runs()
    assert Counter(run.task_id for run in runs) == Counter(ids)
    assert {run.outcome for run in runs} == {"finished"}
    assert {version_of(run) for run in runs} == {"old", "new"}
    assert not client.zcard("{reliable:0}:dead")
    # What is acknowledged last is removed a moment later.
    wait_for(lambda: not client.keys("unacked*"), 15, "all of it is acknowledged")
    assert not client.llen("celery")

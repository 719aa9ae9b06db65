"""`reliable drill`: its own workers are killed, and what it says is what its tasks did."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from proof import checker
from tests.docs.blocks import Page
from tests.integration.commands import Ran, run_celery
from tests.integration.conftest import APP, SOON, Project
from tests.integration.figures import LEDGER
from tests.integration.project.factory import Settings
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

PAGES = ("operations-drill.rst",)
DRILLS, RESTART = (shlex.split(one) for one in Page(*PAGES).commands())

#: Four drills, whose workers start as users' do.
DRILL_SECONDS = 400.0

#: What an idle namespace has. An audit says that there were drills.
REMAIN = ("meta", "workers", "happened", "hours", "audit", "ended", "ended_at", "pass", "groups")

Drill = Callable[..., Ran]


@pytest.fixture
def project_settings(project_settings: Settings) -> Settings:
    """What is lost is missed soon, and one loss is allowed."""
    return replace(project_settings, reliable={**SOON, "MAX_LOSSES": 1})


@pytest.fixture
def drill(project: Project, tmp_path: Path) -> Drill:
    """Run a command of the page."""

    def run(words: list[str], *more: str) -> Ran:
        assert words[:4] == ["celery", "-A", "proj", "reliable"]
        return run_celery(
            *words[3:],
            *more,
            app=APP,
            environ=project.environ("ready:none", {}),
            folder=tmp_path,
            seconds=DRILL_SECONDS,
        )

    return run


@pytest.fixture(autouse=True)
def nobody_left() -> Iterator[None]:
    """No process of a drill outlives it."""
    yield
    wait_for(lambda: not drilling(), 20, "no process of a drill")


def drilling() -> list[psutil.Process]:
    """Processes of drills that this test has started, or that a killed one has left."""
    test = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]
    found = []
    for process in psutil.process_iter(["cmdline", "environ"]):
        is_one = "celery_reliable.contrib.drill" in (process.info["cmdline"] or ())
        told = (process.info["environ"] or {}).get("PYTEST_CURRENT_TEST", "")
        if is_one and told.startswith(test) and process.status() != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


def left(project: Project) -> list[str]:
    """The keys that would not be there if there had been no drill."""
    client = project.redis.client()
    found = [key.decode().removeprefix(LEDGER) for key in client.keys("*")]
    ours = ("worker:", "sent:", "taken:", "celery-reliable.rooms")
    ours += ("_kombu.binding.celery.pidbox", "_kombu.binding_deadlines")
    return sorted(key for key in found if key not in REMAIN and not key.startswith(ours))


def test_the_drills_of_the_page(drill: Drill, project: Project, tmp_path: Path) -> None:
    theirs = project.send("work", 0.01)
    before = left(project)
    ran = drill(DRILLS, "--json", "--logs", str(tmp_path))
    assert ran.code == 0, ran
    counted = {
        "worker-kill": {"published": 2, "runs": 4, "dead_letters": 0},
        "child-kill": {"published": 2, "runs": 3, "dead_letters": 0},
        "freeze": {"published": 2, "runs": 4, "dead_letters": 0},
        "poison": {"published": 1, "runs": 2, "dead_letters": 1},
    }
    reports: dict[str, dict[str, Any]] = {one.pop("kind"): one for one in ran.json["items"]}
    for kind, wanted in counted.items():
        seconds = reports[kind].pop("recovery_seconds")
        # What was frozen goes on until its worker has heard.
        zombies = reports[kind].pop("zombies")
        assert zombies <= (2 if kind == "freeze" else 0)
        right = {**wanted, "lost": 0, "doubled": 0, "problem": "", "is_well": True}
        assert reports[kind] == right, kind
        # The log says the same to somebody else.
        rows = checker.read((tmp_path / f"{kind}.jsonl").read_text().splitlines())
        assert checker.check(rows).faults == [], kind
        begun = [row["at"] for row in rows if row["kind"] == "begin"]
        assert len(begun) == wanted["runs"], kind
        assert 0 < seconds < rows[-1]["at"] - begun[0], kind
    assert list(reports) == list(counted)
    # Other people's work is as it was.
    assert left(project) == before
    assert project.redis.client().llen("celery") == 1
    assert project.redis.client().exists(f"{LEDGER}task:{theirs.id}")


def test_the_broker_is_restarted_by_a_command(
    drill: Drill, project: Project, redis_server: RedisServer
) -> None:
    script = f"import os; os.kill({redis_server.pid}, {int(signal.SIGCONT)})"
    words = [*RESTART[:-1], f"{sys.executable} -c '{script}'"]
    ran = drill(words)
    assert ran.code == 0, ran
    head, told = (line.split() for line in ran.out.splitlines())
    assert head[0] == "drill"
    assert told[0] == "broker-restart"
    assert told[3:] == ["40", "40", "0", "0", "0", "0"]
    assert left(project) == []


def test_what_cannot_be_done_is_said(drill: Drill, project: Project) -> None:
    before = project.redis.client().keys("*")
    for words in (DRILLS[:-1], RESTART[:-2]):
        ran = drill(words)
        assert ran.code == 2
        assert "--yes-this-is-staging" in ran.err or "--restart-command" in ran.err
    assert project.redis.client().keys("*") == before
    failing = drill([*RESTART[:-1], "echo no >&2; exit 7"], "--json")
    assert failing.code == 1
    (report,) = failing.json["items"]
    assert "ended with 7: no" in report["problem"]


def test_a_drill_that_is_killed_leaves_nobody_behind(drill: Drill) -> None:
    kill = threading.Thread(target=drill, args=(DRILLS,))
    kill.start()
    (worker,) = wait_for(drilling, 60, "a worker of the drill")
    psutil.Process(worker.ppid()).kill()
    kill.join(60)
    wait_for(lambda: not drilling(), 30, "the end of all its processes")

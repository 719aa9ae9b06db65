"""The ways of `docs/architecture.rst`, walked by real processes and compared with the page."""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from celery_reliable.ledger.scripts import names, script
from celery_reliable.recovery import Sweeper
from tests.integration.conftest import SOON, Project
from tests.integration.figures import wait_until_gone
from tests.support import architecture
from tests.support.architecture import PACKAGE, Step, Way
from tests.support.proxy import RedisProxy
from tests.support.waiting import wait_for
from tests.support.walking import Entry, entries, following

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("TESTS_APART") or os.environ.get("TESTS_SHIFTS")),
    reason="the page has the way of prefork, with steps that are one",
)

APP = "tests.integration.project.followed"

HAPPY, KILLED = architecture.ways()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the processes write what they enter."""
    return tmp_path / "way"


@pytest.fixture
def watched(project: Project, proxy: RedisProxy) -> Project:
    """The project, all of whose commands go through the proxy."""
    return project.with_settings(broker_url=proxy.url(), result_url=proxy.url(1), reliable=SOON)


def runs(proxy: RedisProxy, way: Way) -> Callable[[], dict[str, int]]:
    """Count how often each script of a way is sent."""
    rules = {name: proxy.watch(script=_sha(name)) for step in way.steps for name in step.scripts}
    return lambda: {name: rule.matched for name, rule in rules.items()}


def _sha(name: str) -> str:
    if name in names():
        # Another one where calls are recorded.
        return script(name).sha
    [found] = PACKAGE.glob(f"*/lua/{name}.lua")
    return hashlib.sha1(found.read_bytes()).hexdigest()


def walk_of(steps: Sequence[Step], entered: Sequence[Entry]) -> list[Entry]:
    """What each process entered from its first step to its last; before and after it is idle.

    Each step comes after those before it, and in the process that the page says.
    """
    numbers: dict[int, list[int]] = defaultdict(list)
    pids: dict[str, set[int]] = defaultdict(set)
    rest = iter(enumerate(entered))
    for step in steps:
        found = next((number for number, entry in rest if step.is_begun_by(entry)), None)
        assert found is not None, f"{step.name} is not entered, or too early"
        pid = entered[found].pid
        numbers[pid].append(found)
        pids[step.process].add(pid)
    assert {len(pid) for pid in pids.values()} == {1}
    assert len(numbers) == len(pids)
    return [
        entry
        for number, entry in enumerate(entered)
        if entry.pid in numbers and numbers[entry.pid][0] <= number <= numbers[entry.pid][-1]
    ]


def modules(walked: Sequence[Entry]) -> set[str]:
    """The modules that were entered, below the package."""
    return {entry.module.removeprefix("celery_reliable.") for entry in walked}


def test_from_apply_async_to_the_settlement(
    watched: Project, proxy: RedisProxy, path: Path
) -> None:
    watched.start_worker(app=APP, concurrency=1, environ={"WAY": str(path)})
    # The first brings up the child, makes the connections and loads the scripts.
    with following(path):
        first = watched.send("add", 1, 2)
    wait_until_gone(watched.redis, first.id)
    # The worker waits for a second each time; what it waits for while it is busy it does not claim.
    client = watched.redis.client()
    began, _ = client.time()
    wait_for(lambda: client.time()[0] > began + 1, 10, "it waits anew")
    path.write_text("")
    n_runs = runs(proxy, HAPPY)

    with following(path):
        sent = watched.send("add", 1, 2)

    wait_until_gone(watched.redis, sent.id)
    walked = walk_of(HAPPY.steps, entries(path))
    assert HAPPY.modules <= modules(walked) <= HAPPY.modules | HAPPY.at_times
    assert set(n_runs().values()) == {1}


def test_of_a_killed_one_to_its_second_run(watched: Project, proxy: RedisProxy, path: Path) -> None:
    dead = watched.start_worker("dead", concurrency=1)
    sent = watched.send("gate", "open")
    watched.effects.run_of(sent.id)
    sweeper = Sweeper(watched.app)
    dead.kill_group()
    n_runs = runs(proxy, KILLED)
    # Other tests of this process may have loaded them.
    script.cache_clear()

    with watched.redis.client() as client, following(path):
        wait_for(lambda: sweeper.run_if_due() and client.llen("celery"), 20, "it is queued again")
    sweeper.close()
    watched.effects.open_gate("open")
    watched.start_worker("second", app=APP, concurrency=1, environ={"WAY": str(path)})

    wait_until_gone(watched.redis, sent.id)
    assert [run.attempt for run in watched.effects.runs(sent.id)] == [1, 2]
    walked = walk_of(KILLED.steps, entries(path))
    # The Django part is in this process where other tests have loaded it.
    entered = {name for name in modules(walked) if not name.startswith("contrib.")}
    assert KILLED.modules <= entered <= KILLED.modules | HAPPY.modules | HAPPY.at_times
    assert min(n_runs().values()) >= 1

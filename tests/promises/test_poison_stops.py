"""A poison pill stops, and takes nobody along.

A task whose attempts keep ending without an outcome is a dead letter after ``MAX_LOSSES`` losses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.conftest import Scale
from tests.integration.conftest import Project
from tests.integration.figures import record_of
from tests.integration.project.explosive import BOMB, add_format
from tests.promises.conftest import Letters
from tests.support.processes import Worker
from tests.support.promises import promise
from tests.support.waiting import wait_for

INNOCENTS = 7
MAX_LOSSES = 3
#: Of a worker which has two tasks: two deaths prove nothing.  Who tells Celery may die of it once.
MOST = MAX_LOSSES + 4
#: In these a task runs beside others of its worker.
POOLS = ("prefork", pytest.param("threads", marks=pytest.mark.full))


@pytest.fixture
def brief(project: Project) -> Project:
    """The project with short times, and tasks that kill their workers."""
    times = {"LEASE_SECONDS": 5, "SWEEP_SECONDS": 0.5, "WITNESS_SECONDS": 0.3, "QUEUED_SECONDS": 10}
    derived = project.with_settings(reliable={**times, "MAX_LOSSES": MAX_LOSSES})
    add_format(derived.app)
    return derived


class Revived:
    """One worker, which is started again whenever it has died."""

    def __init__(self, start: Callable[[], Worker]) -> None:
        self._start = start
        self.worker = start()
        self.deaths = 0

    def revive(self) -> bool:
        """Start it again if it has died; return whether it had."""
        if self.worker.is_running:
            return False
        # What it ran in a child would run on.
        self.worker.end()
        self.worker, self.deaths = self._start(), self.deaths + 1
        return True


def charged(project: Project, task_ids: Sequence[str]) -> set[str]:
    """The losses that any of these is charged with by now."""
    return {record_of(project.redis, one).get("losses", "0") for one in task_ids}


@promise("poison-stops")
def test_poison_stops_after_max_losses_and_one_runs(shared: Project, letters: Letters) -> None:
    """`MAX_LOSSES` is three; it kills its process in the fourth run too, and Celery is told.  Two
    losses and two retries are neither three of one kind.
    """
    poison = shared.send("poison")
    both = shared.send("follow", ["kill", "retry", "kill", "retry", "finish"], 0, 2)
    good = [shared.send("work", 0.05) for _ in range(20)]
    for result in good:
        assert result.get(timeout=20) == "worked"
    wait_for(lambda: poison.state == "FAILURE", 30, "Celery was told")
    assert [run.attempt for run in shared.effects.runs(poison.id)] == [1, 2, 3, 4]
    assert {i: one["reason"] for i, one in letters().items()} == {poison.id: "lost"}
    assert not shared.effects.overlaps()
    assert all(len(shared.effects.runs(r.id)) == 1 for r in good)
    assert both.get(timeout=30) == "run 5"
    assert [run.attempt for run in shared.effects.runs(both.id)] == [1, 2, 3, 4, 5]


@promise("poison-stops")
@pytest.mark.parametrize("pool", POOLS)
def test_one_that_kills_its_worker_takes_nobody_along(
    pool: str, brief: Project, letters: Letters, scale: Scale
) -> None:
    """Of eight tasks of a worker one kills it in each run: the others are charged with nothing."""
    buried: set[str] = set()
    for _ in range(scale.of(full=20, small=1)):
        innocents = [brief.send("bystander", 0.2) for _ in range(INNOCENTS)]
        poison, losses = brief.send("deadly", INNOCENTS), set[str]()
        revived = Revived(lambda: start(brief, pool))

        def is_done() -> bool:
            revived.revive()  # noqa: B023
            losses.update(charged(brief, [one.id for one in innocents]))  # noqa: B023
            # A task that is killed behind its body stores nothing.
            are_over = all(one.ready() for one in innocents)  # noqa: B023
            return are_over and record_of(brief.redis, poison.id)["state"] == "dead"  # noqa: B023

        wait_for(is_done, 180, "all are done")
        revived.worker.end()
        assert losses == {"0"}
        assert [one.get(timeout=5) for one in innocents] == ["unharmed"] * INNOCENTS
        assert revived.deaths <= MAX_LOSSES + 2
        buried.add(poison.id)
        assert {i: one["losses"] for i, one in letters().items()} == dict.fromkeys(
            buried, MAX_LOSSES + 1
        )


@promise("poison-stops")
@pytest.mark.parametrize("pool", POOLS)
def test_a_node_that_is_gone_charges_nobody(pool: str, brief: Project) -> None:
    """Seven tasks ran on it: nobody knows which of them it was."""
    results = [brief.send("bystander", 0.2).id for _ in range(INNOCENTS)]
    worker = start(brief, pool)
    wait_for(lambda: len(brief.effects.runs()) == INNOCENTS, 30, "all of them run")
    worker.kill_group()
    start(brief, pool)
    seen: set[str] = set()

    def are_over() -> bool:
        seen.update(charged(brief, results))
        return all(brief.effects.finished(one) for one in results)

    wait_for(are_over, 60, "all of them run again")
    assert seen == {"0"}
    assert not brief.effects.overlaps()
    assert {len(brief.effects.runs(one)) for one in results} == {2}


@promise("poison-stops")
@pytest.mark.parametrize(
    ("name", "pool", "options", "deaths"),
    [
        ("work", "prefork", {"serializer": BOMB}, 0),
        pytest.param("work", "threads", {"serializer": BOMB}, MOST, marks=pytest.mark.full),
        pytest.param("work", "gevent", {"serializer": BOMB}, MOST, marks=pytest.mark.full),
        pytest.param("plain_late", "prefork", {"compression": BOMB}, MOST, marks=pytest.mark.full),
    ],
)
def test_a_message_that_kills_whoever_opens_it_stops_too(
    name: str, pool: str, options: dict[str, Any], deaths: int, brief: Project, letters: Letters
) -> None:
    """It kills a process of the pool, or the worker where none can have opened it. What runs beside
    it, and what waits behind it, goes on.
    """
    revived = Revived(
        lambda: brief.start_worker(
            "one", app="tests.integration.project.explosive", pool=pool, wait=False
        )
    )
    running = brief.send("gate", "open")
    brief.effects.run_of(running.id, timeout_seconds=30)
    bomb, losses = brief.send(name, 0, **options), set[str]()
    innocents = [running.id, *(brief.send("work", 0).id for _ in range(INNOCENTS))]

    def is_done() -> bool:
        is_dead = record_of(brief.redis, bomb.id).get("state") == "dead"
        if revived.revive() or is_dead:
            # Beside one that runs whenever the worker dies nobody knows which of the two it was.
            brief.effects.open_gate("open")
        losses.update(charged(brief, innocents))
        return is_dead and all(brief.effects.finished(one) for one in innocents)

    wait_for(is_done, 300, "a dead letter, and the end of all others")
    # Of a plain task nobody knows whether it had begun: what ran beside it three times is charged.
    assert losses == {"0"} or name == "plain_late"
    assert {i: one["reason"] for i, one in letters().items()} == {bomb.id: "lost"}
    # Where no process of a pool opened it, whoever is to tell Celery may die of that once.
    if name == "work":
        wait_for(lambda: not revived.revive() and bomb.state == "FAILURE", 60, "Celery was told")
    assert revived.deaths <= deaths
    assert revived.worker.is_running


def start(brief: Project, pool: str) -> Worker:
    """Start a worker of eight tasks at a time, which may die before it says that it is ready."""
    return brief.start_worker("one", pool=pool, concurrency=INNOCENTS + 1, wait=False)

"""The figures of frozen workers and of lost connections; small unless `--full` is given.

`-s` shows the figures.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from tests.conftest import Scale, StartRedis
from tests.integration.conftest import Project
from tests.integration.figures import (
    RECORD,
    assert_each_ran_once,
    connections,
    is_alive,
    leases,
    wait_until_settled,
)
from tests.integration.project.factory import Settings
from tests.support.effects import Effects
from tests.support.load import Load
from tests.support.processes import Worker
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

# The first ones are frozen at small scale too.
POOLS = ("prefork", "threads", "solo", "gevent")
N_SMALL = 2


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    is_full = metafunc.config.getoption("full")
    if "frozen_pool" in metafunc.fixturenames:
        metafunc.parametrize("frozen_pool", POOLS if is_full else POOLS[:N_SMALL])
    if "results_wait" in metafunc.fixturenames:
        results = {True: "results wait", False: "results raise"} if is_full else {True: "small"}
        metafunc.parametrize("results_wait", list(results), ids=list(results.values()))


class TestFrozen:
    """A worker is frozen for twice its lease and comes back as a zombie."""

    @pytest.fixture
    def lease_seconds(self, scale: Scale) -> float:
        """The default at full scale."""
        return scale.of(full=10.0, small=2.0)

    @pytest.fixture
    def project_settings(
        self, project_settings: Settings, scale: Scale, lease_seconds: float
    ) -> Settings:
        times = {"LEASE_SECONDS": lease_seconds, "SWEEP_SECONDS": lease_seconds / 5}
        times["WITNESS_SECONDS"] = 1.5
        return replace(project_settings, reliable=times)

    def test_a_zombie_settles_nothing_and_its_successor_once(
        self, project: Project, scale: Scale, lease_seconds: float, frozen_pool: str
    ) -> None:
        took = []
        n_killed = 0
        for turn in range(scale.of(full=5, small=1)):
            # By turns, prefork's attempt is stopped, and ends by itself as it wakes up. What cannot
            # be stopped always ends by itself.
            is_to_end = frozen_pool != "prefork" or turn % 2 == 1
            zombie = project.start_worker(
                "zombie",
                pool=frozen_pool,
                concurrency=1 if frozen_pool == "solo" else 2,
            )
            frozen = _Frozen(project, zombie, turn)
            successor = project.start_worker("successor")
            took.append(frozen.hand_over(lease_seconds))
            with frozen.watched():
                n_killed += not frozen.wake_up(is_to_end)
                # Both work on.
                fresh = [project.send("work", 0.05).id for _ in range(4)]
                frozen.wait(
                    lambda f=fresh: all(map(project.effects.finished, f)), 15, "fresh tasks"
                )
            assert frozen.end() == ["run 2"]
            wait_until_settled(project.redis, 10)
            assert [run.attempt for run in project.effects.runs(frozen.task_id)] == [1, 2]
            # Both are ended first, so that whatever the zombie could still do is done.
            assert zombie.stop() == 0
            assert successor.stop() == 0
            assert frozen.results() == []
            assert not leases(project.redis)
            frozen.close()
        print(
            f"{frozen_pool}: frozen {len(took)} times for {2 * lease_seconds:g} s; the successor "
            f"began {min(took):.1f} s to {max(took):.1f} s after the freeze and settled once each "
            f"time; zombies killed: {n_killed}, ended by themselves: {len(took) - n_killed}"
        )


class _Frozen:
    """One task that loses its worker to a freeze, and what must not change meanwhile."""

    def __init__(self, project: Project, zombie: Worker, turn: int) -> None:
        self._effects = project.effects
        self._zombie = zombie
        self._gates = (f"first-{turn}", f"second-{turn}")
        self._client = project.redis.client()
        self._result = project.send("follow", [f"gate:{gate}" for gate in self._gates])
        self.task_id = self._result.id
        # Each time that a result is stored, Celery's backend says so here.
        self._told = project.redis.client(db=1).pubsub(ignore_subscribe_messages=True)
        self._told.subscribe(f"celery-task-meta-{self.task_id}")
        self._told.get_message(timeout=5)
        self._seen: Any = None
        wait_for(lambda: project.effects.runs(self.task_id), 10, "the first run")

    def hand_over(self, lease_seconds: float) -> float:
        """Freeze the worker for twice its lease; return how soon another ran the task."""
        self._zombie.freeze()
        frozen_at = self._effects.now()
        wait_for(lambda: len(self._effects.runs(self.task_id)) == 2, 30, "the second run")
        second = self._effects.runs(self.task_id)[1]
        assert second.worker.startswith("successor@")
        self._seen = self._holds()
        (delivery,) = self._seen[0].values()
        assert self.task_id.encode() in delivery
        assert self._seen[1][b"attempt"] == b"2"
        self.wait(
            lambda: self._effects.now() - frozen_at >= 2 * lease_seconds, 30, "twice the lease"
        )
        return second.started_at - frozen_at

    @contextmanager
    def watched(self) -> Iterator[None]:
        """What the successor holds is the same before and after, and is all that it holds."""
        assert self._holds() == self._seen
        yield
        # What it ran meanwhile may be acknowledged a moment later.
        self.wait(lambda: self._holds() == self._seen, 5, "nothing but this delivery")

    def wait(self, condition: Callable[[], Any], timeout_seconds: float, what: str) -> None:
        """`wait_for`, with a look at what the successor holds each time."""

        def is_true() -> Any:
            assert self._seen[0].items() <= self._delivered().items()
            assert self._record() == self._seen[1]
            return condition()

        wait_for(is_true, timeout_seconds, what)

    def wake_up(self, is_to_end: bool) -> bool:
        """Thaw the worker until its attempt is over; return whether it came to its own end."""
        first = self._effects.runs(self.task_id)[0]
        assert first.ended_at is None
        if is_to_end:
            self._effects.open_gate(self._gates[0])
        self._zombie.thaw()
        is_prefork = first.pid != self._zombie.pid

        def is_over() -> bool:
            has_ended = self._effects.runs(self.task_id)[0].ended_at is not None
            return has_ended or (is_prefork and not is_alive(first.pid))

        self.wait(is_over, 20, "the end of the zombie's attempt")
        has_ended = self._effects.runs(self.task_id)[0].ended_at is not None
        assert has_ended or not is_to_end or is_prefork
        if not is_to_end:
            assert not is_alive(first.pid)
            assert not has_ended
        return has_ended

    def end(self) -> list[str]:
        """Let the successor end; return what was stored until then."""
        self._effects.open_gate(self._gates[1])
        assert self._result.get(timeout=10) == "run 2"
        return self.results()

    def results(self) -> list[str]:
        """What was stored since the last call, as it was told."""
        found = []
        while (message := self._told.get_message(timeout=0.5)) is not None:
            found.append(self._result.backend.decode(message["data"])["result"])
        return found

    def close(self) -> None:
        """Close the connections."""
        self._told.close()
        self._client.close()

    def _delivered(self) -> dict[bytes, bytes]:
        (unacked,) = self._client.keys("unacked:successor@*")
        return self._client.hgetall(unacked)

    def _record(self) -> dict[bytes, bytes]:
        return self._client.hgetall(RECORD + self.task_id)

    def _holds(self) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
        return self._delivered(), self._record()


def without_outcome(effects: Effects, outages: list[tuple[float, float]]) -> list[str]:
    """The tasks that ran once more, after an attempt whose end fell into an outage."""
    found = []
    for task_id, count in Counter(run.task_id for run in effects.runs()).items():
        if count == 1:
            continue
        first, second = effects.runs(task_id)
        assert first.ended_at is not None
        assert any(since <= first.ended_at <= until for since, until in outages)
        # Never at once.
        assert first.ended_at < second.started_at
        found.append(task_id)
    return found


class TestBrokerAway:
    """The broker goes away, or its connections do, while there is work."""

    @pytest.fixture
    def redis_server(self, start_redis: StartRedis) -> RedisServer:
        """A server that answers for nothing that is not on its disk."""
        return start_redis({"appendfsync": "always"})

    def test_an_outage_ends_no_worker_and_repeats_no_task(
        self, project: Project, scale: Scale, results_wait: bool
    ) -> None:
        """Celery's own default is to raise at once when a result cannot be stored.

        That ends an attempt without an outcome, so a task whose end falls into the outage runs
        again after it. With `result_backend_always_retry` nothing does.
        """
        project = project.with_settings(celery={"result_backend_always_retry": results_wait})
        workers = {
            "busy": project.start_worker("busy", concurrency=3, wait=False),
            "idle": project.start_worker("idle", options=("-Q", "idle"), wait=False),
        }
        for worker in workers.values():
            worker.wait_until_ready()
        before = leases(project.redis)
        assert len(before) == 2
        seconds = scale.of(full=10.0, small=3.0)
        ids: list[str] = []
        outages = []
        took = []
        for turn in range(scale.of(full=5, small=1)):
            # One runs through the outage, some are ended in it, most are waiting.
            through = project.send("gate", f"through-{turn}").id
            project.effects.run_of(through)
            ids += [through, *(project.send("work", 0.05).id for _ in range(150))]
            n_before = len(project.effects.finished())
            wait_for(
                lambda n=n_before: len(project.effects.finished()) >= n + 10, 20, "some are done"
            )
            stopped_at = project.effects.now()
            project.redis.stop()
            assert len(project.effects.finished()) < len(ids) - 20
            wait_for(lambda t=stopped_at: project.effects.now() - t >= seconds, 30, "the outage")
            project.redis.start()
            started_at = project.effects.now()
            outages.append((stopped_at, started_at))
            later = [project.send("work", 0.05).id for _ in range(50)]
            later += [project.send("work", 0.05, queue="idle").id for _ in range(2)]
            project.effects.open_gate(f"through-{turn}")
            ids += later
            wait_until_settled(project.redis, 60)
            took.append(project.effects.now() - started_at)
            assert all(worker.is_running for worker in workers.values())
        # None was declared dead either.
        assert leases(project.redis) == before
        again = [] if results_wait else without_outcome(project.effects, outages)
        assert_each_ran_once(project.effects, [task_id for task_id in ids if task_id not in again])
        print(
            f"Redis away for {seconds:g} s, {len(took)} times, results "
            f"{'wait' if results_wait else 'raise'}: both workers live, {len(ids) - len(again)} "
            f"tasks ran once and {len(again)} again, all settled {min(took):.1f} s to "
            f"{max(took):.1f} s after its return"
        )

    def test_cut_connections_are_no_deaths(self, project: Project, scale: Scale) -> None:
        workers = list(project.start_workers("one", "two").values())
        first = project.send("work", 0.01).id
        wait_until_settled(project.redis, 10)
        before = leases(project.redis)
        children = [set(worker.children()) for worker in workers]
        seconds = scale.of(full=30.0, small=5.0)
        every = scale.of(full=1.0, small=0.5)
        dice = random.Random(11)
        cut: list[str] = []
        with (
            project.redis.client() as client,
            Load(lambda: project.send("work", 0.05).id, 25.0) as load,
        ):
            began_at = project.effects.now()
            while len(cut) < seconds / every:
                wait_for(
                    lambda: project.effects.now() - began_at >= len(cut) * every, 10, "the next cut"
                )
                found = [one for worker in workers for one in connections(worker, project.redis)]
                address = dice.choice(found)
                last = {entry["addr"]: entry["cmd"] for entry in client.client_list()}
                # One may have been closed since: then another.
                if client.client_kill_filter(addr=address):
                    cut.append(last.get(address, "unknown"))
            wait_for(lambda: project.effects.now() - began_at >= seconds, 10, "the end of the load")
        wait_until_settled(project.redis, 60)
        assert_each_ran_once(project.effects, [first, *load.ids])
        assert all(worker.is_running for worker in workers)
        assert [set(worker.children()) for worker in workers] == children
        assert leases(project.redis) == before
        print(
            f"{len(cut)} connections cut in {load.seconds:.0f} s under {len(load.ids)} tasks: each "
            f"ran once, all settled, no process ended, no lease changed; their last commands: "
            f"{', '.join(f'{name} {count}' for name, count in Counter(cut).most_common())}"
        )

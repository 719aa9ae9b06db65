"""Faults on real servers and workers: each is found, and a system that is well has none."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from celery_reliable.exceptions import LedgerUnavailable
from celery_reliable.findings import Limits
from celery_reliable.operations import Desk, OrderKind, check
from celery_reliable_probe import problems
from tests.integration.conftest import ONE_EACH, SOON, Project
from tests.integration.desk.faults import SEEN_SECONDS, found, wait_for_finding
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for


@pytest.fixture
def hasty(project: Project) -> Project:
    """The project with the least times: what is silent for eight seconds is found."""
    return project.with_settings(reliable=SOON)


@pytest.fixture
def desk(hasty: Project) -> Iterator[Desk]:
    with Desk(hasty.app) as found:
        yield found


def test_nothing_is_wrong_with_a_system_that_works(hasty: Project, desk: Desk) -> None:
    assert found(desk) == set()
    hasty.start_worker("one")
    hasty.start_worker("two").stop()
    hasty.send("gate", "door")
    hasty.send("work", 0, countdown=3600)
    hasty.send("failing")
    results = [hasty.send("work", 0.2) for _ in range(20)]
    seen: set[str] = set()

    def is_done() -> bool:
        seen.update(found(desk))
        return all(result.ready() for result in results)

    wait_for(is_done, 30, "all worked off")
    # For longer than it takes to be found silent.
    from_ms = desk.ledger.workers.time_ms()
    wait_for(
        lambda: seen.update(found(desk)) or desk.ledger.workers.time_ms() - from_ms > 10_000,
        20,
        "a quiet time",
    )
    assert seen == set()


@pytest.mark.full
def test_who_leaves_and_who_runs_alone_in_its_main_loop_do_not_stand(
    hasty: Project, desk: Desk
) -> None:
    leaving = hasty.start_worker("leaving")
    hasty.effects.run_of(hasty.send("gate", "door").id)
    hasty.start_worker("solo", pool="solo", options=("-Q", "alone"))
    leaving.signal_main(signal.SIGTERM)
    wait_for(lambda: [one.leaving for one in desk.workers.all()] == [True, False], 20, "one leaves")
    hasty.effects.run_of(hasty.send("plain_gate", "door", queue="alone").id)
    # Half of its slots are free, and it takes nothing any more (but what it had asked for).
    for _ in range(3):
        hasty.send("work", 0)
    from_ms = desk.ledger.workers.time_ms()
    seen: set[str] = set()
    # For longer than it takes to be found.
    wait_for(
        lambda: seen.update(found(desk)) or desk.ledger.workers.time_ms() - from_ms > 14_000,
        30,
        "a while",
    )
    # That nobody consumes it may well be said.
    assert seen <= {"queue_without_consumer"}
    hasty.effects.open_gate("door")


@pytest.mark.full
def test_a_sweeper_that_is_dead_and_a_worker_that_is_frozen(hasty: Project, desk: Desk) -> None:
    worker = hasty.start_worker("one")
    result = hasty.begin("gate", "door")
    hasty.send("work", 0)
    worker.signal_main(signal.SIGSTOP)

    wait_for_finding(desk, "worker_lapsed")
    wait_for_finding(desk, "sweeper_silent")

    (lapsed,) = (one for one in check(desk.status()) if one.name == "worker_lapsed")
    assert result.id in lapsed.message
    assert f"pid {worker.pid}" in lapsed.message
    worker.signal_main(signal.SIGCONT)
    hasty.effects.open_gate("door")
    wait_for(lambda: not found(desk) - {"worker_died"}, 30, "all is well again")


def test_a_death_is_told_when_all_of_it_is_mended(hasty: Project, desk: Desk) -> None:
    hasty.start_worker("survivor")
    victim = hasty.start_worker("victim")
    victim.kill_group()

    wait_for_finding(desk, "worker_died")

    assert found(desk) == {"worker_died"}
    (finding,) = check(desk.status())
    assert "victim@" in finding.message
    assert found(desk, recent_seconds=0) == set()


def test_nobody_is_there(hasty: Project, desk: Desk) -> None:
    hasty.send("work", 0)

    assert "no_worker" in found(desk)


@pytest.mark.full
def test_a_queue_that_nobody_consumes_and_one_that_is_old(hasty: Project, desk: Desk) -> None:
    hasty.start_worker("one", options=ONE_EACH)
    for _ in range(2):
        hasty.send("gate", "door")
    for _ in range(4):
        hasty.send("work", 0)
    hasty.send("work", 0, queue="forgotten")

    wait_for_finding(desk, "queue_old", oldest_seconds=3)
    wait_for_finding(desk, "queue_without_consumer")

    messages = {one.name: one.message for one in check(desk.status())}
    assert "'forgotten'" in messages["queue_without_consumer"]
    # Its slots are taken: that is no fault of the worker's.
    assert "worker_takes_nothing" not in found(desk)
    # Who has drained it need not start more workers.
    desk.orders.give(OrderKind.DRAIN, "one", by="ann")
    hints = {one.name: one.hint for one in check(desk.status(), Limits(oldest_seconds=3))}
    assert "drained all workers that consume it" in hints["queue_old"]
    hasty.effects.open_gate("door")


@pytest.mark.full
def test_a_worker_that_turns_and_takes_nothing(hasty: Project, desk: Desk, tmp_path: Path) -> None:
    """Nothing tells of it but that work waits."""
    probed = hasty.with_settings(reliable={**SOON, "PROBE_DIRECTORY": str(tmp_path)})
    worker = probed.start_worker("deaf", app="tests.integration.project.deaf")
    wait_for(lambda: not problems("readyz", str(tmp_path)), 20, "it looks as if it was ready")
    # It has taken what it had asked for before that.
    wait_for(lambda: hasty.send("work", 0) and desk.queues.all()[0].depth, 10, "it is deaf")

    wait_for_finding(desk, "worker_takes_nothing")

    assert found(desk) == {"worker_takes_nothing"}
    (finding,) = check(desk.status())
    assert "deaf@" in finding.message
    assert f"pid {worker.pid}" in finding.message
    assert "2 of 2 slots free" in finding.message
    wait_for(lambda: problems("readyz", str(tmp_path)), SEEN_SECONDS, "a probe says so too")
    assert problems("livez", str(tmp_path)) == []


def test_a_poison(hasty: Project, desk: Desk) -> None:
    poisoned = hasty.with_settings(reliable={**SOON, "MAX_LOSSES": 0})
    poisoned.start_worker("one")
    result = poisoned.send("poison")

    wait_for_finding(desk, "poison")

    (finding,) = (one for one in check(desk.status()) if one.name == "poison")
    assert "project.poison 1" in finding.message
    assert result.id in finding.message
    assert "SIGKILL" in finding.message

    poisoned.app.send_task("project.nobody_knows")
    wait_for_finding(desk, "unprocessable")
    (finding,) = (one for one in check(desk.status()) if one.name == "unprocessable")
    assert "project.nobody_knows 1" in finding.message
    assert found(desk) == {"poison", "unprocessable"}


def test_a_redis_that_is_full(hasty: Project, desk: Desk) -> None:
    client = hasty.redis.client()
    client.config_set("maxmemory-policy", "noeviction")
    used = int(client.info("memory")["used_memory"])
    client.config_set("maxmemory", used + used // 50)

    assert found(desk) == {"ledger_full"}

    client.config_set("maxmemory", used // 2)
    (finding,) = (one for one in check(desk.status()) if one.name == "ledger_full")
    assert finding.severity == "error"


def test_a_redis_that_evicts(hasty: Project, desk: Desk) -> None:
    client = hasty.redis.client()
    client.config_set("maxmemory", 2**30)
    client.config_set("maxmemory-policy", "allkeys-lru")

    assert found(desk) == {"redis_evicts"}


def test_a_broker_that_is_away(project: Project, ledger_server: RedisServer) -> None:
    apart = project.with_settings(reliable={"REDIS_URL": ledger_server.url()})
    with Desk(apart.app) as desk:
        project.redis.stop()

        assert found(desk) == {"broker_away"}


def test_a_ledger_that_is_away(project: Project) -> None:
    with Desk(project.app, patience_seconds=0.2) as desk:
        project.redis.stop()

        with pytest.raises(LedgerUnavailable):
            desk.status()

"""Faults on real servers and workers: each is found, and a system that is well has none."""

from __future__ import annotations

import json
import signal
from contextlib import closing
from pathlib import Path

import pytest

from celery_reliable.findings import Limits
from celery_reliable.model import Reason
from celery_reliable.operations import Desk, OrderKind, check
from celery_reliable.recovery import Sweeper
from celery_reliable_probe import problems
from tests.integration.conftest import SOON, Project
from tests.integration.desk.faults import SEEN_SECONDS, finding, found, wait_for_finding
from tests.integration.figures import DUE
from tests.integration.letters import put
from tests.support.waiting import wait_for

#: The least times that there are: what lasts for two seconds is found.
LEAST = {"LEASE_SECONDS": 1, "SWEEP_SECONDS": 0.1, "WITNESS_SECONDS": 0.5, "QUEUED_SECONDS": 2}


@pytest.fixture
def project(project: Project) -> Project:
    """The project with the least times: what is silent for eight seconds is found."""
    return project.with_settings(reliable=SOON)


def bury(project: Project, count: int, reason: Reason, task: str) -> None:
    for number in range(count):
        put(project, f"{task}-{number}", reason=reason, name=task)


def message(desk: Desk, name: str, **limits: float) -> str:
    """What is told of a fault that there is."""
    told = finding(desk, name, **limits)
    assert told is not None, name
    return told.message


def found_for(desk: Desk, seconds: float) -> set[str]:
    """All that is found within so many seconds, by the server's clock."""
    seen: set[str] = set()
    from_ms = desk.ledger.workers.time_ms()
    wait_for(
        lambda: (
            seen.update(found(desk)) or desk.ledger.workers.time_ms() - from_ms > seconds * 1000
        ),
        2 * seconds,
        "a quiet time",
    )
    return seen


def test_nothing_is_wrong_with_a_system_that_works(project: Project, desk: Desk) -> None:
    assert found(desk) == set()
    project.start_worker("one")
    project.start_worker("two").stop()
    project.send("gate", "door")
    project.send("work", 0, countdown=3600)
    project.send("failing")
    results = [project.send("work", 0.2) for _ in range(20)]
    seen: set[str] = set()

    def is_done() -> bool:
        seen.update(found(desk))
        return all(result.ready() for result in results)

    wait_for(is_done, 30, "all worked off")
    # For longer than it takes to be found silent.
    assert seen | found_for(desk, 10) == set()


@pytest.mark.full
def test_who_leaves_and_who_runs_alone_in_its_main_loop_do_not_stand(
    project: Project, desk: Desk
) -> None:
    leaving = project.start_worker("leaving")
    project.begin("gate", "door")
    project.start_worker("solo", pool="solo", options=("-Q", "alone"))
    leaving.signal_main(signal.SIGTERM)
    wait_for(lambda: [one.leaving for one in desk.workers.all()] == [True, False], 20, "one leaves")
    project.begin("plain_gate", "door", queue="alone")
    # Half of its slots are free, and it takes nothing any more (but what it had asked for).
    for _ in range(3):
        project.send("work", 0)
    # For longer than it takes to be found.  That nobody consumes it may well be said.
    assert found_for(desk, 14) <= {"queue_without_consumer"}
    project.effects.open_gate("door")


@pytest.mark.full
def test_a_sweeper_that_is_dead_and_a_worker_that_is_frozen(project: Project, desk: Desk) -> None:
    worker = project.start_worker("one")
    result = project.begin("gate", "door")
    project.send("work", 0)
    worker.signal_main(signal.SIGSTOP)

    lapsed = wait_for_finding(desk, "worker_lapsed").message
    wait_for_finding(desk, "sweeper_silent")

    assert result.id in lapsed
    assert f"pid {worker.pid}" in lapsed
    why = desk.tasks.get(result.id).why.sentence
    assert "lapsed" in why
    # Nobody else is there to declare it dead.
    assert "a pass of the sweeper takes the attempt" in why
    worker.signal_main(signal.SIGCONT)
    project.effects.open_gate("door")
    wait_for(lambda: not found(desk) - {"worker_died"}, 30, "all is well again")


def test_a_death_is_told_when_all_of_it_is_mended(project: Project, desk: Desk) -> None:
    project.start_worker("survivor")
    project.start_worker("victim").kill_group()

    assert "victim@" in wait_for_finding(desk, "worker_died").message
    assert found(desk) == {"worker_died"}
    assert found(desk, recent_seconds=0) == set()


def test_a_queue_that_nobody_consumes_and_one_that_is_old(project: Project, desk: Desk) -> None:
    project.start_worker("one")
    for _ in range(2):
        project.send("gate", "door")
    for _ in range(4):
        project.send("work", 0)
    project.send("work", 0, queue="forgotten")

    old = wait_for_finding(desk, "queue_old", oldest_seconds=3)

    assert "Start more workers" in old.hint
    assert "'forgotten'" in wait_for_finding(desk, "queue_without_consumer").message
    desk.orders.give(OrderKind.DRAIN, "one@*", by="ann")
    wait_for(lambda: desk.orders.all()[0].heard, 20, "the worker obeys")
    # Its slots are taken: that is no fault of the worker's.
    assert "worker_takes_nothing" not in found(desk, oldest_seconds=1)
    project.effects.open_gate("door")


@pytest.mark.full
def test_a_worker_that_turns_and_takes_nothing(
    project: Project, desk: Desk, tmp_path: Path
) -> None:
    """Nothing tells of it but that work waits."""
    probed = project.with_settings(reliable={**SOON, "PROBE_DIRECTORY": str(tmp_path)})
    worker = probed.start_worker("deaf", environ={"TRAP": "asks no more"})
    wait_for(lambda: not problems("readyz", str(tmp_path)), 20, "it looks as if it was ready")
    # It has taken what it had asked for before that.
    wait_for(lambda: project.send("work", 0) and desk.queues.all()[0].depth, 10, "it is deaf")

    told = wait_for_finding(desk, "worker_takes_nothing").message

    assert found(desk) == {"worker_takes_nothing"}
    assert all(word in told for word in ("deaf@", f"pid {worker.pid}", "2 of 2 slots free"))
    assert problems("livez", str(tmp_path)) == []


@pytest.mark.full
def test_a_worker_that_stands(project: Project, desk: Desk) -> None:
    worker = project.start_worker("one", environ={"TRAP": "stands"})
    wait_for(lambda: desk.status().workers[0].turned_at, 20, "a beat that tells of its turns")
    # Its main loop hangs in a signal handler, for as long as the gate is shut.
    worker.signal_main(signal.SIGWINCH)
    assert f"pid {worker.pid}" in wait_for_finding(desk, "worker_stands").message
    project.effects.open_gate("door")
    wait_for(lambda: not found(desk), SEEN_SECONDS, "all is well again")


def test_a_poison(project: Project, desk: Desk) -> None:
    poisoned = project.with_settings(reliable={**SOON, "MAX_LOSSES": 0})
    poisoned.start_worker("one")
    result = poisoned.send("poison")

    told = wait_for_finding(desk, "poison").message

    assert all(word in told for word in ("project.poison 1", result.id, "SIGKILL"))
    assert found(desk) == {"poison"}


def test_letters_are_found_behind_any_number_of_newer_ones(project: Project, desk: Desk) -> None:
    bury(project, 3, Reason.LOST, "images.resize")
    bury(project, 700, Reason.UNPROCESSABLE, "legacy.cleanup")

    assert "images.resize 3" in message(desk, "poison")
    assert "legacy.cleanup 700" in message(desk, "unprocessable")
    desk.ledger.discard("images.resize-0")
    # It is told as long as there are any, though it is no news any more.
    assert "images.resize 2" in message(desk, "poison")

    bury(project, 99, Reason.FAILED, "mail.send")
    assert finding(desk, "many_failures") is None
    bury(project, 100, Reason.FAILED, "mail.other")
    few = finding(desk, "many_failures")
    assert few is not None
    assert (few.severity, "199 tasks" in few.message) == ("warning", True)
    assert "mail.other 100, mail.send 99" in few.message
    many = {one.name: one.severity for one in check(desk.status(), Limits(failures=19))}
    assert many["many_failures"] == "error"


def test_a_forgotten_order_is_found(project: Project, desk: Desk) -> None:
    for _ in range(25):
        project.send("work", 0)
    given = [
        desk.orders.give(OrderKind.PAUSE, "celery", by="ann", why="prices", later=True),
        desk.orders.give(OrderKind.PAUSE, "mail", by="ann", for_seconds=7200, later=True),
    ]
    assert finding(desk, "order_without_end") is None
    client, key = project.redis.client(), desk.ledger.keys.orders
    for one in given:
        # As if it had been given half an hour ago.
        told = json.loads(client.hget(key, one.id))
        told["given_ms"] -= 1_800_000
        client.hset(key, one.id, json.dumps(told))

    forgotten = finding(desk, "order_without_end")

    assert forgotten is not None
    assert all(word in forgotten.message for word in ("celery", "by ann", "25 tasks"))
    assert given[0].id in forgotten.hint
    assert "mail" not in forgotten.message
    desk.orders.resume([given[0].id], by="ann")
    assert finding(desk, "order_without_end") is None


def test_tasks_that_wait_for_nobody_are_found(
    project: Project, desk: Desk, sweeper: Sweeper
) -> None:
    direct = project.with_settings(celery={**project.settings.celery, "worker_direct": True})
    direct.send("work", 0, only_workers=["gpu-9*"])
    sweeper.run_if_due()
    assert finding(desk, "named_worker_missing") is None

    missing = wait_for_finding(desk, "named_worker_missing", oldest_seconds=0.5)

    assert "gpu-9*" in missing.message


def test_a_long_run_is_found(shared: Project, desk: Desk) -> None:
    result = shared.begin("gate", "door")
    assert finding(desk, "long_run") is None

    assert result.id in wait_for_finding(desk, "long_run", run_seconds=0.5).message
    shared.effects.open_gate("door")


def test_a_redis_that_is_full_and_one_that_evicts(project: Project, desk: Desk) -> None:
    client = project.redis.client()
    client.config_set("maxmemory-policy", "noeviction")
    used = int(client.info("memory")["used_memory"])
    client.config_set("maxmemory", used + used // 50)
    assert found(desk) == {"ledger_full"}

    client.config_set("maxmemory", used // 2)
    full = finding(desk, "ledger_full")
    assert full is not None
    assert full.severity == "error"

    client.config_set("maxmemory", 2**30)
    client.config_set("maxmemory-policy", "allkeys-lru")
    assert found(desk) == {"redis_evicts"}


def test_a_broker_that_is_away(apart: Project) -> None:
    with Desk(apart.app) as desk:
        workers = desk.ledger.workers
        facts = {"nodename": "one@here", "unacked": "unacked:one"}
        workers.register("one@here/ab.0", lease_ms=60_000, client_id=0, facts=facts)
        apart.redis.stop()

        assert "broker_away" in found(desk)
        # The ledger knows who lives.
        assert [one.state for one in desk.workers.all()] == ["alive"]


@pytest.mark.full
def test_a_dead_worker_that_cannot_be_recovered(project: Project) -> None:
    least = project.with_settings(reliable=LEAST)
    with Desk(least.app) as desk, closing(Sweeper(least.app)) as sweeper:
        client = project.redis.client()
        # Something of another kind has the name of its unacked hash.
        client.set("unacked:spoilt", "no hash")
        facts = {"nodename": "one@here", "unacked": "unacked:spoilt"}
        desk.ledger.workers.register("one@here/ab.0", lease_ms=1, client_id=0, facts=facts)

        def sees(name: str) -> bool:
            sweeper.run_if_due()
            return name in found(desk)

        for name in ("pass_failed", "recovery_stuck"):
            wait_for(lambda n=name: sees(n), SEEN_SECONDS, name)
            wait_for_finding(desk, name)
        assert "one@here" in message(desk, "recovery_stuck")

        client.delete("unacked:spoilt")
        wait_for(lambda: sweeper.run_if_due()[0] and not desk.workers.all(), 10, "it is recovered")
        assert found(desk) == {"worker_died"}


@pytest.mark.full
def test_passes_that_have_more_to_do_than_they_can(project: Project) -> None:
    """Each looks at one task, and they begin with what should have been looked at long ago."""
    slow = project.with_settings(reliable={**LEAST, "SWEEP_BATCH": 1})
    ids = [slow.send("work", 0).id for _ in range(25)]
    with Desk(slow.app) as desk, closing(Sweeper(slow.app)) as sweeper:
        two_minutes_ago = desk.ledger.workers.time_ms() - 120_000
        slow.redis.client().zadd(DUE, dict.fromkeys(ids, two_minutes_ago))
        sweeper.run_if_due()
        wait_for_finding(desk, "sweeper_behind")

        def has_caught_up() -> bool:
            sweeper.run_if_due()
            return "sweeper_behind" not in found(desk)

        wait_for(has_caught_up, SEEN_SECONDS, "it has caught up")

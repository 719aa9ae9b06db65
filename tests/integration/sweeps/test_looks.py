"""What a pass of the sweeper makes of records and of leases, without any worker."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from typing import Any

import pytest

from celery_reliable.app import reliable_of
from celery_reliable.leases import WorkerLease
from celery_reliable.ledger.answers.tasks import Waiting
from celery_reliable.ledger.answers.workers import Declared
from celery_reliable.model import Due, Reason, Record, State, SweepReport
from celery_reliable.publishing import resending
from celery_reliable.recovery.sweeper import Sweeper
from tests.integration.claiming import claimed, register, unacked_of
from tests.integration.conftest import Project
from tests.support.waiting import wait_for


def look(sweeper: Sweeper) -> SweepReport:
    report = SweepReport()
    sweeper.overdue.look([], [], report)
    return report


def make_due(project: Project, task_ids: Sequence[str]) -> None:
    """Let somebody have to look now."""
    due = reliable_of(project.app).ledger.keys.due
    project.redis.client().zadd(due, {i: n for n, i in enumerate(task_ids, 1)}, xx=True)


def looks_in_seconds(project: Project, task_ids: Sequence[str]) -> list[float]:
    """In how many seconds somebody looks at each."""
    ledger = reliable_of(project.app).ledger
    now_ms = ledger.workers.time_ms()
    at_ms = {due.task_id: int(due.due_ms) for due in ledger.all_due(start=0, limit=1000)}
    return [(at_ms[task_id] - now_ms) / 1000 for task_id in task_ids]


def test_a_pass_asks_as_much_of_redis_whatever_waits_behind(
    project: Project, sweeper: Sweeper
) -> None:
    client: Any = project.redis.client()
    asked = []
    for more in (100, 400):
        task_ids = [project.send("work", 0, ignore_result=True).id for _ in range(more)]
        for _ in range(2):
            # The first pass connects.
            make_due(project, task_ids[:100])
            client.config_resetstat()
            assert look(sweeper).looked_at == 100
        calls = {name: one["calls"] for name, one in client.info("commandstats").items()}
        asked.append(calls)
        # One after the other, each postponement would be a round trip.
        assert client.info("stats")["total_reads_processed"] < 50
        assert looks_in_seconds(project, task_ids[:100]) == pytest.approx([60] * 100, abs=20)

    assert asked[0] == asked[1]
    # Redis 6 walks from one end of the list to the other for it.
    assert "cmdstat_lrange" not in asked[1]


def test_what_has_waited_for_long_is_looked_at_less_often(
    project: Project, sweeper: Sweeper
) -> None:
    """As a backlog, the oldest first; the least is QUEUED_SECONDS, the most ten times that."""
    waited = [3 * 24 * 3600, 24 * 3600, 700, 240, 100, 1]
    task_ids = [project.send("work", 0).id for _ in waited]
    ledger = reliable_of(project.app).ledger
    client = project.redis.client()
    for task_id, seconds in zip(task_ids, waited, strict=True):
        client.hincrby(ledger.keys.record(task_id), "published_ms", -1000 * seconds)
    make_due(project, task_ids)

    report = look(sweeper)

    assert (report.looked_at, report.resent) == (6, 0)
    looks = looks_in_seconds(project, task_ids)
    assert looks == pytest.approx([600, 600, 350, 120, 60, 60], abs=20)


def test_what_may_be_behind_messages_that_tell_nothing_is_looked_at_as_often_as_ever(
    project: Project, sweeper: Sweeper
) -> None:
    for _ in range(5):
        project.send("plain_work", 0)
    task_id = project.send("work", 0).id
    ledger = reliable_of(project.app).ledger
    project.redis.client().hincrby(ledger.keys.record(task_id), "published_ms", -3600_000)
    make_due(project, [task_id])

    assert look(sweeper).resent == 0

    assert looks_in_seconds(project, [task_id]) == pytest.approx([60], abs=20)


@pytest.mark.parametrize("waiting", [1, 3, 30])
def test_what_is_gone_from_the_front_of_a_queue_is_sent_again(
    project: Project, sweeper: Sweeper, waiting: int
) -> None:
    client = project.redis.client()
    sent = []
    for number in range(waiting + 1):
        sent.append(project.send("work", 0).id)
        # Sent in different milliseconds, or nobody could tell which was first.
        client.hincrby(
            reliable_of(project.app).ledger.keys.record(sent[-1]), "published_ms", number - 1000
        )
    client.rpop("celery")
    make_due(project, sent)

    report = look(sweeper)

    assert (report.looked_at, report.resent) == (waiting + 1, 1)
    assert client.llen("celery") == waiting + 1
    newest: Any = client.lindex("celery", 0)
    assert sent[0] in newest.decode()


@pytest.mark.parametrize("state", ["queued", "parked"])
@pytest.mark.parametrize("holder", ["a stranger", "a worker", "a dead worker", "nobody"])
def test_what_somebody_may_run_is_not_sent_again(
    project: Project, sweeper: Sweeper, state: str, holder: str
) -> None:
    """A ledger that lost records may know neither the claim nor the worker, and a broker that lost
    its keys knows no list of unacked hashes.
    """
    client = project.redis.client()
    task_id = project.send("work", 0).id
    client.hset(reliable_of(project.app).ledger.keys.record(task_id), "state", state)
    unacked = unacked_of(sweeper.broker)
    if holder == "nobody":
        client.rpop("celery")
    else:
        if holder != "a worker":
            unacked.open(sweeper.config.namespace)
        assert len(unacked.take(["celery"], ["celery"], 1).deliveries) == 1
    alive, dead = holder == "a worker", holder == "a dead worker"
    lease = WorkerLease("one", dead, 0, "", "", "", facts={"unacked": unacked.name})
    make_due(project, [task_id])

    report = SweepReport()
    sweeper.overdue.look([lease] * alive, [lease] * dead, report)

    assert report.looked_at == 1
    is_held = holder in ("a stranger", "a worker")
    assert report.resent == (0 if is_held else 1)
    if is_held:
        # What was parked a moment ago may still be held: its worker removes the message soon.
        ledger, config = reliable_of(project.app).ledger, sweeper.config
        [due] = ledger.all_due(start=0, limit=1)
        left_ms = int(due.due_ms) - ledger.workers.time_ms()
        longest_ms = config.sweep_ms if state == "parked" else config.queued_ms
        assert longest_ms / 2 < left_ms <= longest_ms


def test_a_send_that_failed_does_not_make_the_next_rarer(
    project: Project, sweeper: Sweeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = project.send("work", 0)
    ledger = reliable_of(project.app).ledger

    def seen() -> Due:
        [due] = ledger.all_due(start=0, limit=1)
        return due

    def found() -> Record:
        record = ledger.find(result.id)
        assert record is not None
        return record

    def refuse(*args: object, **kwargs: object) -> None:
        raise ConnectionError("the broker is away")

    with monkeypatch.context() as patched:
        patched.setattr(resending, "resend", refuse)
        for _ in range(7):
            sweeper.sending.send(seen(), found(), SweepReport())
            left_ms = int(seen().due_ms) - ledger.workers.time_ms()
            assert left_ms <= sweeper.config.sweep_ms
    assert ledger.find(result.id).resends == 0  # type: ignore[union-attr]

    report = SweepReport()
    sweeper.sending.send(seen(), found(), report)

    assert report.resent == 1
    left_ms = int(seen().due_ms) - ledger.workers.time_ms()
    assert left_ms <= sweeper.config.queued_ms


@pytest.mark.parametrize(
    ("hours", "member", "state"),
    [
        (23, "", State.WAITING),
        (25, "", None),
        (25, "parked", State.WAITING),
        (25, "gone", None),
        (25, "dead", None),
    ],
)
def test_a_canvas_has_its_time_from_when_its_host_ended(
    project: Project, sweeper: Sweeper, hours: int, member: str, state: State | None
) -> None:
    """However long its host was parked before; and more, while a member is known to live."""
    client, ledger = project.redis.client(), reliable_of(project.app).ledger
    task_id = project.send("replaced", [1, 2]).id
    register(ledger, "one")
    claim = claimed(ledger, task_id, worker="one")
    client.hincrby(ledger.keys.record(task_id), "published_ms", -40 * 3600_000)
    if member == "parked":
        project.send("work", 0, task_id=member, countdown=3600)
    elif member == "dead":
        ledger.bury_message(
            member, Reason.REJECTED, exception="", traceback="", message="{}", name=""
        )
    members = ["another", member] if member else []
    assert isinstance(ledger.replace(claim, due_in_ms=0, members=members), Waiting)
    client.hincrby(ledger.keys.record(task_id), "waiting_ms", -hours * 3600_000)
    make_due(project, [task_id])

    look(sweeper)

    found = ledger.find(task_id)
    assert (found.state if found else None) == state


def test_one_record_that_cannot_be_read_holds_up_no_other(
    project: Project, sweeper: Sweeper
) -> None:
    """It was written by a later version, say."""
    client = project.redis.client()
    task_ids = [project.send("work", 0).id for _ in range(3)]
    client.delete("celery")
    ledger = reliable_of(project.app).ledger
    client.hset(ledger.keys.record(task_ids[0]), "state", "unheard_of")
    make_due(project, task_ids)

    report = look(sweeper)

    assert (report.looked_at, report.resent, report.failed) == (3, 2, 1)
    assert client.hget(ledger.keys.record(task_ids[0]), "state") == b"unheard_of"
    assert looks_in_seconds(project, task_ids) == pytest.approx([60] * 3, abs=20)


def test_a_pass_holds_few_messages_in_its_memory(project: Project, sweeper: Sweeper) -> None:
    client = project.redis.client()
    ledger = reliable_of(project.app).ledger
    task_ids = [project.send("work", 0).id for _ in range(100)]
    for task_id in task_ids:
        text: Any = client.hget(ledger.keys.record(task_id), "message")
        text = text.decode().replace('"utf-8"', f'"utf-8", "more": "{"x" * 1_000_000}"', 1)
        client.hset(ledger.keys.record(task_id), "message", text)
    make_due(project, task_ids)

    tracemalloc.start()
    try:
        assert look(sweeper).looked_at == 100
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 40_000_000


def test_recovery_holds_few_of_the_messages_of_a_dead_worker_in_its_memory(
    project: Project, sweeper: Sweeper
) -> None:
    client = project.redis.client()
    workers = sweeper.ledger.workers
    workers.register("one", lease_ms=10_000, client_id=0, facts={"unacked": "unacked:one"})
    for number in range(100):
        project.send("work", "x" * 1_000_000)
        raw = client.lpop("celery")
        client.hset("unacked:one", f"tag-{number}", b"%d celery\n%s" % (number + 1, raw))
    client.zadd(sweeper.ledger.keys.workers, {"one": 0})
    [lease] = workers.leases()
    assert isinstance(workers.declare(lease, "lapsed", witness_ms=0), Declared)
    [lease] = workers.leases()
    report = SweepReport()

    tracemalloc.start()
    try:
        sweeper.recovery.recover(lease, report)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert report.returned == client.llen("celery") == 100
    assert peak < 40_000_000


def test_who_died_in_an_outage_is_declared_dead_by_the_witness_and_not_after_the_grace(
    project: Project, sweeper: Sweeper
) -> None:
    gone = project.redis.client()
    client_id = gone.client_id()
    gone.close()
    workers = sweeper.ledger.workers
    workers.register("one", lease_ms=10_000, client_id=client_id, facts={})
    client = project.redis.client()
    client.zadd(sweeper.ledger.keys.workers, {"one": 0})
    report, _ = sweeper.run_if_due()
    assert int(sweeper.ledger.passes.meta()["grace_ms"]) > workers.time_ms() + 5000
    assert report is not None
    assert report.declared == 0

    client.hincrby(sweeper.ledger.keys.meta, "passed_ms", -2000)
    missing = int(client.hget(sweeper.ledger.keys.worker("one"), "missing_ms") or 0)
    assert missing
    wait_for(lambda: workers.time_ms() > missing + sweeper.config.witness_ms, 5, "the witness")
    report, _ = sweeper.run_if_due()

    assert report is not None
    assert report.declared == 1


def test_a_dead_workers_record_that_cannot_be_read_holds_up_no_other(
    project: Project, sweeper: Sweeper
) -> None:
    client = project.redis.client()
    ledger = reliable_of(project.app).ledger
    register(ledger, "one", lease_ms=10_000)
    task_ids = [project.send("work", 0).id for _ in range(3)]
    for task_id in task_ids:
        claimed(ledger, task_id, f"token-{task_id}", "one")
    client.hset(ledger.keys.record(task_ids[1]), "state", "unheard_of")
    client.zadd(ledger.keys.workers, {"one": 0})
    [lease] = ledger.workers.leases()
    assert isinstance(ledger.workers.declare(lease, "lapsed", witness_ms=0), Declared)
    [lease] = ledger.workers.leases()
    report = SweepReport()

    sweeper.recovery.recover(lease, report)

    assert (report.lost, report.failed) == (2, 1)

"""Orders and revocations of operators in real workers: what is stopped does not begin, what is
revoked ends, and nothing else is lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import celery
import pytest

from celery_reliable.app import reliable_of
from celery_reliable.ledger.answers import Resumed
from celery_reliable.ledger.holds import OrderBook
from celery_reliable.operations import Desk, IfRunning
from celery_reliable.orders import Order, OrderKind
from tests.integration.commands import Run, invoke
from tests.integration.conftest import SOON, Project
from tests.integration.figures import (
    LOCKS,
    assert_each_ran_once,
    ids_in,
    passes_finish,
    record_of,
    wait_until_settled,
)
from tests.support.promises import promise
from tests.support.rabbit_server import RabbitServer
from tests.support.waiting import wait_for

#: Within which every worker obeys; a loaded machine gets more than the promised three seconds.
OBEYED_SECONDS = 10.0


def book(project: Project) -> OrderBook:
    return reliable_of(project.app).ledger.orders


def give(project: Project, kind: OrderKind, target: str, **options: Any) -> Order:
    return book(project).give(kind, target, by="ann", why="it is broken", **options)


def resume(project: Project, order: Order) -> None:
    assert isinstance(book(project).resume(order.id, by="ann", limit=1000), Resumed)


def wait_until_parked(project: Project, ids: Sequence[str], order: Order) -> None:
    def are_parked() -> bool:
        found = [record_of(project.redis, one) for one in ids]
        parked = [one.get("waiting_for") == f"order {order.id}" for one in found]
        return all(parked) and {one["state"] for one in found} == {"waiting"}

    wait_for(are_parked, 30, "all are parked")


def order_of_runs(project: Project, ids: Sequence[str]) -> list[str]:
    return [run.task_id for run in project.effects.runs() if run.task_id in ids]


def wait_until_obeyed(project: Project) -> None:
    """Wait until all workers have heard of the orders that there are now."""
    ledger = reliable_of(project.app).ledger

    def have_heard() -> bool:
        version = ledger.orders.read().version
        looks = ledger.worker_looks()
        return bool(looks) and all(one.doing.get("orders") == version for one in looks)

    wait_for(have_heard, 2 * OBEYED_SECONDS, "all workers have heard of it")


def test_a_struck_task_waits_and_comes_back_in_the_order_of_publication(soon: Project) -> None:
    """What runs goes on, or is stopped without a loss where the order says so."""
    soon.start_worker("one", concurrency=1)
    soon.begin("gate", "busy")
    # What the worker has fetched before it knows of any order.
    fetched = [soon.send("work", 0.01).id for _ in range(3)]
    order = give(soon, OrderKind.STRIKE, "project.wor*")
    wait_until_obeyed(soon)
    later = [soon.send("work", 0.01).id for _ in range(10)]
    other = soon.send("locked", "x", 0.01)
    late = soon.send("work", 0.01, countdown=2).id

    soon.effects.open_gate("busy")

    ids = [*fetched, *later, late]
    soon.effects.run_of(other.id)
    wait_until_parked(soon, ids, order)
    assert order_of_runs(soon, ids) == []
    assert {record_of(soon.redis, one).get("losses", "0") for one in ids} == {"0"}
    resume(soon, order)
    wait_until_settled(soon.redis, 30)
    assert_each_ran_once(soon.effects, ids)
    assert order_of_runs(soon, ids) == ids

    struck = soon.begin("gate", "struck")
    order = give(soon, OrderKind.STRIKE, "project.gate", is_stop=True)
    wait_until_parked(soon, [struck.id], order)
    assert record_of(soon.redis, struck.id).get("losses", "0") == "0"
    # The process has another task, and goes on with it.
    assert soon.send("locked", "x", 0.01).get(timeout=20) == "x"
    soon.effects.open_gate("struck")
    resume(soon, order)
    wait_until_settled(soon.redis, 30)
    assert [run.outcome for run in soon.effects.runs(struck.id)] == [None, "finished"]


@pytest.mark.full
def test_who_is_called_up_from_a_line_and_struck_gives_back_the_place_that_it_got(
    soon: Project,
) -> None:
    soon.start_worker("one")
    soon.effects.open_gate("open")
    holder = soon.begin("in_line_gate", "object", "door")
    struck = soon.send("in_line_gate", "object", "open").id
    wait_for(
        lambda: record_of(soon.redis, struck).get("waiting_for", "").startswith("object "),
        20,
        "a line",
    )
    order = give(soon, OrderKind.STRIKE, "project.in_line_gate")
    wait_until_obeyed(soon)

    soon.effects.open_gate("door")

    wait_until_parked(soon, [struck], order)
    assert holder.get(timeout=20) == "object"
    wait_for(lambda: not soon.redis.client().keys(LOCKS), 20, "no object held")
    resume(soon, order)
    wait_until_settled(soon.redis, 40)
    assert order_of_runs(soon, [struck]) == [struck]


def test_a_paused_queue_waits_as_it_is_and_others_go_on(soon: Project) -> None:
    worker = soon.start_worker("one", concurrency=1, options=("-Q", "celery,other"))
    wait_until_obeyed(soon)
    soon.begin("gate", "busy")
    ids = [soon.send(name, 0.01).id for _ in range(3) for name in ("work", "plain_work")]
    order = give(soon, OrderKind.PAUSE, "celery")
    # Before that more can be fetched.
    wait_until_obeyed(soon)
    wait_for(
        lambda: ids_in(soon.redis, "celery") == ids,
        OBEYED_SECONDS,
        "all are given back",
    )
    soon.effects.open_gate("busy")
    ids.append(soon.send("work", 0.01).id)

    soon.effects.run_of(soon.send("work", 0.01, queue="other").id)
    for command in ("cancel_consumer", "add_consumer"):
        getattr(soon.app.control, command)("celery", reply=True, limit=1, timeout=10)
    # It answers before it has done it, and would lose that with its connection.
    queues = lambda: soon.app.control.broadcast("active_queues", reply=True, limit=1)  # noqa: E731
    wait_for(lambda: "'name': 'celery'" in str(queues()), 10, "it consumes again")
    soon.redis.client().client_kill_filter(_type="normal", skipme=True)
    soon.effects.run_of(soon.send("work", 0.01, queue="other").id)

    assert ids_in(soon.redis, "celery") == ids
    assert order_of_runs(soon, ids) == []
    resume(soon, order)
    wait_until_settled(soon.redis, 30)
    assert_each_ran_once(soon.effects, ids)
    assert order_of_runs(soon, ids) == ids
    assert worker.is_running


@pytest.mark.full
def test_what_a_worker_has_claimed_before_it_may_begin_is_given_back_without_a_loss(
    project: Project, start_rabbit: Callable[..., RabbitServer]
) -> None:
    """From a broker that delivers by itself, what comes back is claimed as it comes."""
    soon = project.with_settings(
        broker_url=start_rabbit().url(), reliable={**SOON, "REDIS_URL": project.redis.url()}
    )
    one = soon.start_worker("one", concurrency=1)
    # Of a plain task the broker does not know that it runs.
    soon.begin("plain_gate", "busy")
    behind = soon.send("work", 0.01)
    record = lambda: record_of(soon.redis, behind.id)  # noqa: E731
    fetched = lambda: soon.app.control.broadcast("reserved", reply=True, limit=1)  # noqa: E731
    wait_for(lambda: behind.id in str(fetched()), 20, "it is fetched")
    soon.start_worker("two", concurrency=1, options=("-Q", "own"))
    own = soon.begin("plain_gate", "busy", queue="own")
    one.kill_group()
    soon.app.control.add_consumer("celery", reply=True, limit=1, timeout=10)
    wait_for(lambda: record().get("state") == "running", 20, "it is claimed")

    order = give(soon, OrderKind.PAUSE, "celery")

    wait_for(lambda: record().get("state") == "queued", 20, "it is given back")
    passes_finish(soon.redis, 3, 20)
    assert record().get("losses", "0") == "0"
    assert not soon.effects.runs(behind.id)
    resume(soon, order)
    soon.effects.open_gate("busy")
    for result in (own, behind):
        result.get(timeout=30)
    assert [run.attempt for run in soon.effects.runs(behind.id)] == [2]


def test_a_drained_worker_takes_nothing_and_its_work_is_done_by_others(soon: Project) -> None:
    soon.start_worker("one", concurrency=1)
    busy = soon.begin("gate", "busy")
    ids = [soon.send("work", 0.01).id for _ in range(4)]

    order = give(soon, OrderKind.DRAIN, "one@*", for_ms=15_000)
    wait_for(
        lambda: ids_in(soon.redis, "celery") == ids,
        OBEYED_SECONDS,
        "all are given back",
    )
    # It fetches nothing that it cannot begin.
    soon.start_worker("two", concurrency=1)

    for one in ids:
        assert soon.effects.run_of(one).worker.startswith("two@")
    assert [run.outcome for run in soon.effects.runs(busy.id)] == [None]
    soon.effects.open_gate("busy")
    # Its time is over: it takes part again.
    soon.send("gate", "two")
    wait_for(lambda: book(soon).read().all == (), 60, f"{order.id} is over")
    again = soon.begin("gate", "two")
    soon.effects.open_gate("two")
    wait_until_settled(soon.redis, 30)
    assert_each_ran_once(soon.effects, [*ids, busy.id, again.id])


@pytest.mark.full
def test_a_drained_worker_keeps_no_slot_for_a_plain_task_that_waited_for_its_eta(
    soon: Project,
) -> None:
    """Celery's timer hands the request to the pool at its ETA, though the message has gone back."""
    soon.start_worker("one", concurrency=1)
    later = soon.send("plain_work", 0.01, countdown=8)

    def is_scheduled() -> bool:
        return later.id in str(soon.app.control.broadcast("scheduled", reply=True, limit=1))

    wait_for(is_scheduled, 10, "the worker has the task")
    order = give(soon, OrderKind.DRAIN, "one@*")
    wait_until_obeyed(soon)
    wait_for(lambda: not is_scheduled(), 30, "its ETA has come")

    resume(soon, order)

    later.get(timeout=20)
    assert_each_ran_once(soon.effects, [later.id])


@pytest.mark.full
def test_what_is_stopped_by_its_id_ends_without_a_broadcast(soon: Project, run: Run) -> None:
    # It hears no remote command.
    worker = soon.start_worker("one", concurrency=1, options=("--without-heartbeat",))
    task = soon.begin("gate", "never")
    broadcasts: Any = soon.redis.client()
    broadcasts.config_resetstat()

    ran = run("revoke", task.id, "--if-running", "kill", "--yes", project=soon)

    assert ran.code == 0, ran
    wait_for(lambda: task.state == "REVOKED", OBEYED_SECONDS, "it is revoked")
    wait_until_settled(soon.redis, 20)
    published = broadcasts.info("commandstats").get("cmdstat_publish", {"calls": 0})
    assert published["calls"] <= 2, "only its result is told"
    # The worker goes on, and has no loss to tell of.
    soon.effects.run_of(soon.send("work", 0.01).id)
    assert len(soon.effects.runs(task.id)) == 1
    assert worker.is_running


def test_an_order_that_there_is_not_keeps_no_other_from_being_resumed(
    soon: Project, run: Run
) -> None:
    for name in ("first", "last", "once more"):
        give(soon, OrderKind.STRIKE, name)

    # As when the same was interrupted after the first.
    assert run("resume", "first", project=soon).code == 0
    ran = run("resume", "first", "last", project=soon)
    assert (ran.code, "'first'" in ran.err, "'last'" in ran.err) == (1, True, False)
    assert [one.target for one in book(soon).read().all if not one.ended_ms] == ["once more"]
    (resumed,) = run("resume", "once more", "--json", project=soon).json["items"]
    assert (resumed["target"], resumed["in_force"]) == ("once more", False)


@promise("revocations")
def test_what_an_operator_revokes_never_runs_or_stops_and_never_comes_back(
    project: Project,
) -> None:
    hasty = project.with_settings(reliable={"SWEEP_SECONDS": 0.5})
    hasty.start_worker("one")
    stopped = hasty.begin("locked_gate", "contract 7", "shut")
    killed = hasty.begin("gate", "shut")
    queued = hasty.send("work", 0)
    parked = hasty.send("work", 0, countdown=6)
    after = hasty.send("work", 0, countdown=6.5)
    ids = (stopped.id, queued.id, parked.id)

    asked = invoke(hasty.app, "revoke", *ids)
    assert asked.exit_code == 1
    assert asked.output.startswith("Revoke 3 tasks (1 running: stop) for good? [y/N]:")
    tried = json.loads(invoke(hasty.app, "revoke", *ids, "--dry-run", "--json").output)
    assert (tried["done"], tried["ended"]) == (3, [queued.id, parked.id])
    with Desk(hasty.app) as desk:
        assert {desk.tasks.get(one).state for one in ids} == {"running", "queued", "waiting"}
        done = json.loads(invoke(hasty.app, "revoke", *ids, "--yes", "--json").output)
        assert (done["ended"], done["running"]) == ([queued.id, parked.id], [stopped.id])
        kill = desk.revocations.revoke([killed.id], by="me", if_running=IfRunning.KILL)
        assert kill.running == (killed.id,)

        # The worker has both slots again, and no object is left.
        hasty.send("locked_gate", "contract 7", "open")
        project.effects.open_gate("open")
        after.get(timeout=30)
        everybody = [*ids, killed.id]
        wait_for(
            lambda: not any(desk.tasks.get(one).is_known for one in everybody), 20, "their end"
        )
        assert {desk.tasks.get(one).outcome for one in (queued.id, parked.id)} == {"REVOKED"}
        assert desk.letters.count() == 0
        again = invoke(hasty.app, "revoke", *ids, "--yes")
        assert (again.exit_code, again.output.splitlines()[0]) == (1, "0 tasks revoked")
    for result in (stopped, killed, queued, parked):
        assert result.state == "REVOKED"
    assert [len(project.effects.runs(one)) for one in everybody] == [1, 0, 0, 1]
    assert not any(project.effects.finished(one) for one in everybody)


def test_what_may_finish_is_not_stopped(shared: Project, desk: Desk) -> None:
    result = shared.begin("gate", "door")

    found = desk.revocations.revoke([result.id], by="me", if_running=IfRunning.FINISH)

    assert found.running == (result.id,)
    shared.effects.open_gate("door")
    wait_for(lambda: shared.effects.finished(result.id), 20, "it has finished")
    if celery.VERSION >= (5, 7):
        # Before that Celery itself stores REVOKED for what runs.
        assert result.get(timeout=20) == "door"


def test_revoking_needs_the_ledger_alone(project: Project, run: Run) -> None:
    waiting = project.send("work", 0)
    dead_port = project.with_settings(
        broker_url="amqp://u:s3cret@127.0.0.1:1//", reliable={"REDIS_URL": project.redis.url()}
    )

    told = run("revoke", waiting.id, "--yes", project=dead_port)

    assert told.code == 0
    assert told.out.splitlines()[0] == "1 task revoked"
    assert "s3cret" not in told.err
    with Desk(project.app) as desk:
        assert not desk.tasks.get(waiting.id).is_known
        assert not desk.audit()[0].problem

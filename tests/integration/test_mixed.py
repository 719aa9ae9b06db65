"""Beside workers without the package: the same Redis, the same queues, before, during and after."""

from __future__ import annotations

from typing import Any

import pytest

from celery_reliable.operations.uninstall import release
from tests.integration.commands import Run
from tests.integration.conftest import SOON, Project
from tests.integration.figures import RECORD, ids_in, wait_until_settled, waiting_clients
from tests.support.waiting import wait_for


@pytest.mark.full
def test_both_kinds_share_the_queues_and_leave_each_other_alone(
    project: Project, stock_project: Project
) -> None:
    ours = project.with_settings(reliable=SOON)
    stock_project.start_worker("stock")
    reliable = ours.start_worker("reliable")
    results = [p.send("work", 0.02) for _ in range(20) for p in (ours, stock_project)]
    for result in results:
        assert result.get(timeout=20) == "worked"
    by_worker = {run.worker.split("@")[0] for run in project.effects.runs()}
    assert by_worker == {"stock", "reliable"}
    reliable.kill_group()
    client = project.redis.client()
    # Nobody is there yet who would miss a message that the server still gives to the killed one.
    wait_for(
        lambda: len(waiting_clients(client)) < 2,
        10,
        "the server knows that one worker is gone",
    )
    more = [ours.send("work", 0.02) for _ in range(10)]
    for result in more:
        assert result.get(timeout=20) == "worked"
    # What the stock worker ran, nobody settled; it is looked at, found done, and not run again.
    ours.start_worker("again")
    wait_for(lambda: not client.keys(RECORD + "*"), 40, "every record ended")
    assert all(len(project.effects.runs(r.id)) == 1 for r in results + more)


@pytest.mark.full
def test_release_strands_nothing_when_the_package_goes(
    project: Project, stock_project: Project, run: Run
) -> None:
    ours = project.with_settings(reliable=SOON)
    worker = ours.start_worker("one")
    client = project.redis.client()
    others = [ours.send("plain_work", 0.01, countdown=15)]
    wait_for(lambda: client.keys("unacked:*"), 10, "the worker holds it")
    running = [ours.send("gate", "gate") for _ in range(2)]
    for result in running:
        project.effects.run_of(result.id)
    others += [ours.send(name, 0.01) for name in ("work", "plain_work", "work")]
    others.append(ours.send("work", 0.01, countdown=15))
    refused = run("release", "--json", project=ours)
    assert refused.code == 1
    assert "one@" in refused.err
    worker.kill_group()
    wait_for(lambda: run("release", project=ours).code == 0, 20, "the lease has run out")
    assert not client.keys("unacked:*")
    assert not client.keys("{reliable:0}:worker:*")
    project.effects.open_gate("gate")
    stock_project.start_worker("stock")
    for result in running + others:
        wait_for(lambda r=result: project.effects.finished(r.id), 30, "it ran at a stock worker")
    assert all(len(project.effects.finished(result.id)) == 1 for result in others)


@pytest.mark.parametrize(("may_scan", "prefix"), [(True, "[a*]:"), (False, "")])
def test_what_a_worker_has_left_on_the_way_from_its_queue_is_given_back(
    soon: Project, may_scan: bool, prefix: str
) -> None:
    settings: dict[str, Any] = {"broker_transport_options": {"global_keyprefix": prefix}}
    project, client = soon.with_settings(celery=settings), soon.redis.client()
    plain, ours = project.send("plain_work", 0.01), project.send("work", 0.01)
    queue = f"{prefix}celery"
    inbox = f"{prefix}celery-reliable.inbox:{queue}"
    for _ in range(2):
        assert client.lmove(queue, inbox, "RIGHT", "LEFT")
    if not may_scan:
        rights = ["on", ">secret", "~*", "&*", "+@all", "-scan"]
        client.execute_command("ACL", "SETUSER", "operator", *rights)
        url = soon.redis.url().replace("redis://", "redis://operator:secret@")
        project = soon.with_settings(broker_url=url, celery=settings)

    assert release(project.app).messages == 2

    assert ids_in(soon.redis, queue) == [plain.id, ours.id]
    assert not client.exists(inbox)


@pytest.mark.full
@pytest.mark.parametrize(("name", "argument"), [("plain_work", 0.01), ("plain_late", "open")])
def test_what_was_given_to_others_while_its_worker_was_frozen(
    project: Project, name: str, argument: Any
) -> None:
    """Plain tasks with an ETA, which a worker holds until then: nobody claims them."""
    # What acknowledges late may run, as far as others can see, and keeps to this.
    visibility = {"broker_transport_options": {"visibility_timeout": 2}}
    brief = project.with_settings(
        reliable={"LEASE_SECONDS": 4, "SWEEP_SECONDS": 1}, celery=visibility
    )
    effects, client = brief.effects, brief.redis.client()
    effects.open_gate("open")
    one = brief.start_worker("one", concurrency=1)
    ids = [brief.send(name, argument, countdown=3).id for _ in range(2)]
    wait_for(lambda: [client.hlen(key) for key in client.keys("unacked:*")] == [2], 10, "it came")
    one.freeze()
    brief.start_worker("two", concurrency=1)
    for task_id in ids:
        wait_for(lambda i=task_id: effects.finished(i), 20, "it runs elsewhere")
    one.thaw()

    def is_through() -> bool:
        """Whether the worker runs what is sent now: it is through with what it held."""
        later = effects.run_of(brief.send("plain_work", 0.05).id)
        return later.worker.startswith("one@")

    wait_for(is_through, 30, "the worker goes on")
    runs = [run for task_id in ids for run in effects.runs(task_id)]
    assert [run.worker.split("@")[0] for run in runs] == ["two", "two"]
    wait_until_settled(brief.redis, 15)

"""Messages on their way from a queue to a worker: at no moment is one nowhere."""

from __future__ import annotations

from typing import Any

import pytest

from celery_reliable.broker import take_text
from celery_reliable.ledger.attempts import taking_script
from celery_reliable.ledger.scripts import script
from tests.integration.conftest import Project
from tests.integration.figures import (
    WAKER,
    assert_each_ran_once,
    leases,
    record_of,
    wait_until_gone,
    wait_until_settled,
)
from tests.support.acl import granted
from tests.support.promises import promise
from tests.support.proxy import RedisProxy
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

#: A wait lasts a second; the rest is for a machine that is busy.
SOON_SECONDS = 2.5


def waits(project: Project, command: str) -> list[Any]:
    """The connections that wait so."""
    return [one for one in project.redis.client().client_list() if one["cmd"] == command]


@promise("nothing-lost")
def test_each_queue_and_priority_is_waited_for_and_a_killed_worker_loses_nothing(
    project: Project,
) -> None:
    calls: list[dict[str, Any]] = [{"queue": one} for one in "abc"]
    calls += [{"queue": "b", "priority": 6}, {"queue": "c", "priority": 9}]
    one = project.start_worker("one", options=("-Q", "a,b,c"))
    effects, late = project.effects, []
    for call in calls:
        sent_at = effects.now()
        result = project.send("work", 0, **call)
        late.append(effects.run_of(result.id).started_at - sent_at)
        wait_until_gone(project.redis, result.id)
    print("began after", [round(seconds, 2) for seconds in late])
    assert max(late) < SOON_SECONDS

    results = [project.send("work", 0.05, **call) for call in calls for _ in range(2)]
    one.kill_group()
    project.start_worker("two", options=("-Q", "a,b,c"))

    for result in results:
        assert result.get(timeout=20) == "worked"
    assert not effects.overlaps()
    wait_until_settled(project.redis, 20)


@pytest.mark.full
@promise("nothing-lost")
@pytest.mark.parametrize("how", ["is killed", "loses its connections"])
def test_what_had_left_its_queue_for_a_worker_that(
    how: str, project: Project, proxy: RedisProxy
) -> None:
    """A plain task: nobody would send it again."""
    far = project.with_settings(broker_url=proxy.url())
    worker = far.start_worker(options=("-Q", "q,spare"))
    rule, client = proxy.watch("BLMOVE", containing="q"), project.redis.client()
    wait_for(lambda: rule.matched, 10, "it waits anew")
    proxy.stall_replies()
    result = project.send("plain_work", 0, queue="q")
    wait_for(lambda: not client.exists("q"), 10, "it is on its way")

    if how == "is killed":
        worker.kill_group()
        project.start_worker("two", options=("-Q", "q"))
    else:
        proxy.cut()
    proxy.mend()

    assert result.get(timeout=20) == "worked"
    assert len(project.effects.runs(result.id)) == 1


@pytest.mark.full
@promise("nothing-lost")
def test_a_process_that_is_killed_as_it_has_taken_a_message(
    project: Project, proxy: RedisProxy
) -> None:
    worker = project.with_settings(broker_url=proxy.url()).start_worker(concurrency=1)
    # Its look at its start is over: nothing is there, and no reply to that is lost.
    wait_for(lambda: waits(project, "blmove"), 20, "it waits for messages")
    rule = proxy.drop_reply(script=taking_script(take_text()).sha, times=None)
    result = project.send("work", 0)
    record = wait_for(lambda: record_of(project.redis, result.id).get("pid"), 10, "a claim")
    worker.kill_child(int(record))
    proxy.remove(rule)
    assert result.get(timeout=20) == "worked"
    assert [run.attempt for run in project.effects.runs(result.id)] == [2]


@pytest.mark.full
@pytest.mark.parametrize("queues", [["q"], ["q", "spare"]])
def test_a_connection_that_nobody_is_behind_any_more_is_waited_by_no_longer(
    queues: list[str], project: Project, proxy: RedisProxy
) -> None:
    """Each queue has one of its own."""
    options = {"socket_timeout": 2, "health_check_interval": 1}
    far = project.with_settings(
        broker_url=proxy.url(), celery={"broker_transport_options": options}
    )
    far.start_worker(options=("-Q", ",".join(queues)))
    for queue in queues:
        proxy.hang_at("BLMOVE", containing=queue).wait()

    # One after the other: as one comes, the processes take from both.
    for queue in queues:
        assert project.send("work", 0, queue=queue).get(timeout=15) == "worked"


@pytest.mark.full
def test_what_a_main_process_has_taken_without_hearing_of_it_is_charged_with_no_loss(
    project: Project, proxy: RedisProxy
) -> None:
    """Nobody can have begun by its claim.  A loss would be one too many."""
    settings = {"MAX_LOSSES": 0, "SWEEP_SECONDS": 1}
    far = project.with_settings(broker_url=proxy.url(), reliable=settings)
    far.start_worker(pool="solo")
    wait_for(lambda: waits(project, "blmove"), 20, "it waits for messages")
    lost = proxy.drop_reply(script=taking_script(take_text()).sha)
    result = project.send("work", 0)
    assert result.get(timeout=30) == "worked"
    lost.wait()
    assert len(project.effects.runs(result.id)) == 1


def n_refused(project: Project) -> int:
    """How many waits the server has refused."""
    stats: dict[str, Any] = project.redis.client().info("commandstats")
    return int(stats.get("cmdstat_blmove", {}).get("rejected_calls", 0))


@pytest.mark.full
def test_a_user_who_may_not_wait_is_served_all_the_same(project: Project) -> None:
    url = granted(project.redis.client(), without=("+blmove", "+lmove"))
    narrow = project.with_settings(broker_url=url, result_url=url)
    narrow.start_worker(concurrency=1)
    for _ in range(3):
        assert narrow.send("work", 0).get(timeout=20) == "worked"
    # It does not ask again and again.
    assert 1 <= n_refused(project) < 5
    project.redis.client().execute_command("ACL", "SETUSER", "app", "+blmove", "+lmove")
    wait_for(lambda: waits(project, "blmove"), 20, "it waits, as it may by now")


@pytest.mark.full
def test_a_server_that_is_full_is_not_asked_again_and_again(project: Project) -> None:
    project.start_worker(concurrency=1)
    client = project.redis.client()
    client.config_set("maxmemory", 1)
    wait_for(lambda: n_refused(project), 10, "a wait that is refused")
    at = project.effects.now()
    wait_for(lambda: project.effects.now() - at > 2, 5, "more of them")
    assert n_refused(project) < 5
    client.config_set("maxmemory", 0)
    assert project.send("work", 0).get(timeout=20) == "worked"


@pytest.mark.full
def test_a_worker_that_is_not_the_waker_any_more_does_not_listen(project: Project) -> None:
    """The bell would ring for it, and not for the one that is."""
    project.start_worker("one")
    wait_for(lambda: waits(project, "brpop"), 10, "it listens")
    project.redis.client().set(WAKER, "two@host/1.0")
    wait_for(lambda: not waits(project, "brpop"), 10, "it does not listen")


@pytest.mark.full
@pytest.mark.parametrize("is_back", [True, False])
def test_a_worker_without_a_lease_leaves_all_messages_to_others(
    project: Project, ledger_server: RedisServer, is_back: bool
) -> None:
    """It was declared dead as it was cut off from the ledger; if *is_back*, it has heard so since,
    and cannot register again.  What it took could not be claimed.
    """
    # What it took all the same would come back after a lease.
    times = {"LEASE_SECONDS": 20, "SWEEP_SECONDS": 1, "QUEUED_SECONDS": 60}
    near = project.with_settings(reliable={**times, "REDIS_URL": ledger_server.url()})
    with RedisProxy(ledger_server.port) as way:
        far = project.with_settings(reliable={**times, "REDIS_URL": way.url()})
        far.start_worker("one")
        near.start_worker("two")
        refused = way.drop_request(script=script("register").sha, times=None)
        way.sever()
        wait_for(lambda: len(leases(ledger_server)) == 1, 20, "one is declared dead")
        if is_back:
            way.mend()
            refused.wait()

        results = [near.send("work", 0) for _ in range(20)]

        for result in results:
            assert result.get(timeout=10) == "worked"
    assert_each_ran_once(project.effects, [one.id for one in results])

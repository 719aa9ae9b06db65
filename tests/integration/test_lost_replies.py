"""Requests and replies that are lost on the way: every step may be repeated."""

from __future__ import annotations

import pytest

from celery_reliable.ledger.scripts import script
from tests.integration.conftest import Project, Start
from tests.integration.figures import LOCKS, RECORD
from tests.support.effects import Effects
from tests.support.promises import promise
from tests.support.proxy import RedisProxy
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for


@promise("never-two")
@pytest.mark.parametrize("how", ["drop_request", "drop_reply"])
@pytest.mark.parametrize("step", ["claim", "settle"])
def test_a_lost_step_of_an_attempt_is_repeated_at_once(
    step: str,
    how: str,
    project: Project,
    proxy: RedisProxy,
    start_worker: Start,
    effects: Effects,
    redis_server: RedisServer,
) -> None:
    behind_proxy = project.with_settings(broker_url=proxy.url())
    start_worker("one", project=behind_proxy)
    warm = project.send("work", 0.01)
    warm.get(timeout=10)
    rule = getattr(proxy, how)(script=script(step).sha, times=2)
    sent_at = effects.now()
    result = project.send("work", 0.01)
    client = redis_server.client()
    assert result.get(timeout=10) == "worked"
    wait_for(lambda: not client.exists(RECORD + result.id), 5, "settled")
    # Without waiting for a lease.
    assert effects.now() - sent_at < 5
    rule.wait(2)
    assert [run.attempt for run in effects.runs(result.id)] == [1]


@pytest.mark.parametrize("how", ["drop_request", "drop_reply"])
@pytest.mark.parametrize(
    ("step", "name", "arguments", "runs"),
    [
        ("bury", "failing", ["on purpose"], 1),
        ("record", "flaky", [1], 2),
        ("lose", "poison_times", [1], 2),
        ("lock", "locked", ["object", 0.01], 1),
        ("unlock", "locked", ["object", 0.01], 1),
        ("keep", "once", ["object"], 1),
    ],
)
def test_every_other_step_may_be_lost_too(
    step: str,
    name: str,
    arguments: list[object],
    runs: int,
    how: str,
    project: Project,
    proxy: RedisProxy,
    start_worker: Start,
    effects: Effects,
) -> None:
    start_worker("one", project=project.with_settings(broker_url=proxy.url()))
    rule = getattr(proxy, how)(script=script(step).sha)
    result = project.send(name, *arguments)
    wait_for(lambda: result.ready(), 15, f"{name} ended")
    rule.wait()
    assert [run.attempt for run in effects.runs(result.id)] == list(range(1, runs + 1))


@pytest.mark.parametrize("how", ["drop_request", "drop_reply"])
def test_a_record_that_was_lost_on_the_way_is_made_once(
    how: str, project: Project, proxy: RedisProxy, start_worker: Start, effects: Effects
) -> None:
    start_worker("one")
    publisher = project.with_settings(broker_url=proxy.url())
    rule = getattr(proxy, how)(script=script("record").sha)
    result = publisher.send("work", 0.01)
    rule.wait()
    assert result.get(timeout=10) == "worked"
    assert len(effects.runs(result.id)) == 1


@promise("one-object")
@pytest.mark.parametrize("how", ["drop_request", "drop_reply"])
@pytest.mark.parametrize("step", ["record", "lock", "withdraw"])
def test_of_two_unique_calls_one_runs_whatever_is_lost_on_the_way(
    step: str,
    how: str,
    project: Project,
    proxy: RedisProxy,
    start_worker: Start,
    effects: Effects,
    redis_server: RedisServer,
) -> None:
    start_worker("one")
    publisher = project.with_settings(broker_url=proxy.url())
    rule = getattr(proxy, how)(script=script(step).sha)
    results = [publisher.send("unique", "object", ["gate:gate"]) for _ in range(2)]
    rule.wait()
    assert len({result.id for result in results}) == 1
    client = redis_server.client()
    assert client.keys(RECORD + "*") == [f"{{reliable:0}}:task:{results[0].id}".encode()]
    effects.open_gate("gate")
    assert results[1].get(timeout=10) == "run 1"
    assert len(effects.runs()) == 1
    wait_for(lambda: not client.keys(LOCKS), 10, "no object held")


def test_a_message_whose_reply_was_lost_is_sent_again_and_runs_once(
    project: Project,
    proxy: RedisProxy,
    start_worker: Start,
    effects: Effects,
    redis_server: RedisServer,
) -> None:
    # Elsewhere than the ledger, as far as the publisher can know: recorded first, then sent.
    publisher = project.with_settings(
        broker_url=proxy.url(), reliable={"REDIS_URL": redis_server.url()}
    )
    rule = proxy.drop_reply("LPUSH")
    result = publisher.send("work", 0.01)
    rule.wait()
    client = redis_server.client()
    assert client.llen("celery") == 2
    start_worker("one")
    assert result.get(timeout=10) == "worked"
    # What follows both in their queue.
    assert project.send("work", 0.01).get(timeout=10) == "worked"
    wait_for(lambda: not client.keys("unacked:*"), 10, "both are acknowledged")
    assert len(effects.runs(result.id)) == 1


def test_a_send_that_raised_is_withdrawn(
    project: Project,
    proxy: RedisProxy,
    start_worker: Start,
    effects: Effects,
    redis_server: RedisServer,
) -> None:
    publisher = project.with_settings(
        broker_url=proxy.url(), reliable={"REDIS_URL": redis_server.url()}
    )
    start_worker("one")
    proxy.sever()
    with pytest.raises(Exception, match=r"(?i)connect|closed|refused|reset"):
        publisher.send("work", 0.01, retry=False)
    assert not redis_server.client().keys(RECORD + "*")
    proxy.mend()
    result = publisher.send("work", 0.01)
    assert result.get(timeout=10) == "worked"
    assert len(effects.runs()) == 1

"""Waiting is safe.

An ETA, a countdown or a long run is never delivered twice because of time alone.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from tests.integration.conftest import Project
from tests.integration.figures import WAKER, record_of, wait_until_gone
from tests.support.promises import promise
from tests.support.waiting import wait_for


@promise("waiting-is-safe")
def test_what_waits_and_what_runs_for_long_runs_once_and_an_eta_is_in_time(
    project: Project,
) -> None:
    """Stock Celery delivers it again after two seconds here.  What has an ETA waits in the ledger,
    also if it comes to a worker too early; the worker is killed that would let it out.
    """
    # A visibility timeout that redelivers soon.
    hasty = project.with_settings(
        celery={
            "broker_transport_options": {
                "visibility_timeout": 2,
                "unacked_restore_interval": 1,
                "unacked_restore_throttle": 1,
            }
        },
    )
    workers, client = hasty.start_workers("one", "two"), hasty.redis.client()
    waker = wait_for(lambda: client.get(WAKER), 10, "a worker that lets tasks out").decode()
    sent_at, eta = hasty.effects.now(), datetime.now(timezone.utc) + timedelta(seconds=9)
    far, near = hasty.send("work", 0.01, eta=eta), hasty.send("work", 0.01, countdown=2)
    record = record_of(hasty.redis, far.id)
    assert record["state"] == "waiting"
    client.lpush("celery", record["message"])
    # It costs no worker memory and no place in a queue.
    wait_for(lambda: not client.llen("celery") and not client.keys("unacked:*"), 2, "it waits")
    assert record_of(hasty.redis, far.id) == record
    workers[waker.partition("@")[0]].kill_group()
    hasty.start_worker("three")

    results = [hasty.send("gate", "gate"), hasty.send("plain_gate", "gate")]
    waiting = [hasty.send(name, 0.01, countdown=8) for name in ("work", "plain_work")]
    started_at = hasty.effects.now()
    wait_for(lambda: hasty.effects.now() - started_at > 9, 15, "several visibility timeouts")
    hasty.effects.open_gate("gate")
    for result in (*results, *waiting, far, near):
        result.get(timeout=10)
        assert [run.attempt for run in hasty.effects.runs(result.id)] in ([1], [None])
    for result, seconds, latest in ((far, 9, 1), (near, 2, 4)):
        late = hasty.effects.starts(result.id)[0] - sent_at - seconds
        print("seconds after its ETA:", round(late, 2))
        assert -0.2 <= late <= latest
    for result in (results[0], far):
        wait_until_gone(hasty.redis, result.id)

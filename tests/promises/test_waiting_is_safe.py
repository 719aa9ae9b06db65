"""Waiting is safe.

An ETA, a countdown or a long run is never delivered twice because of time alone.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from tests.integration.conftest import Project
from tests.integration.figures import record_of, wait_until_gone
from tests.support.promises import promise
from tests.support.waiting import wait_for


@promise("waiting-is-safe")
def test_what_waits_and_what_runs_for_long_runs_once_and_a_far_eta_fires_on_time(
    project: Project,
) -> None:
    """Stock Celery delivers it again after two seconds here.  What has an ETA waits in the ledger:
    the worker that was there at its publication is killed.
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
    first = hasty.start_worker("first")
    sent_at, eta = hasty.effects.now(), datetime.now(timezone.utc) + timedelta(seconds=9)
    far = hasty.send("work", 0.01, eta=eta)
    client = hasty.redis.client()
    assert record_of(hasty.redis, far.id)["state"] == "parked"
    # It costs no worker memory and no place in a queue.
    assert client.llen("celery") == 0
    assert not client.keys("unacked:*")
    first.kill_group()
    hasty.start_workers("one", "two")

    results = [hasty.send("gate", "gate"), hasty.send("plain_gate", "gate")]
    waiting = [hasty.send(name, 0.01, countdown=8) for name in ("work", "plain_work")]
    assert record_of(hasty.redis, waiting[0].id)["state"] == "parked"
    started_at = hasty.effects.now()
    wait_for(lambda: hasty.effects.now() - started_at > 9, 15, "several visibility timeouts")
    hasty.effects.open_gate("gate")
    for result in (*results, *waiting, far):
        result.get(timeout=10)
        assert len(hasty.effects.runs(result.id)) == 1
    late = hasty.effects.starts(far.id)[0] - sent_at - 9
    print("seconds after its ETA:", round(late, 2))
    assert -0.2 <= late <= 1
    assert hasty.effects.runs(far.id)[0].attempt == 1
    for result in (results[0], far):
        wait_until_gone(hasty.redis, result.id)

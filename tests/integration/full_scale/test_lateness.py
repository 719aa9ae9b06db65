"""Moments spread over some seconds, whose waker and workers are killed: each task begins once, and
how late.  Small unless `--full` is given; `-s` shows the figures.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from benchmarks.figures import percentile
from celery_reliable.app import reliable_of
from tests.conftest import Scale
from tests.integration.conftest import Project
from tests.support.processes import Worker
from tests.support.promises import promise
from tests.support.rabbit_server import RabbitServer, why_no_rabbit
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full


@pytest.fixture(params=["redis", "rabbit"])
def timely(request: pytest.FixtureRequest, project: Project, tmp_path: Path) -> Iterator[Project]:
    """The project, with a broker."""
    soon: dict[str, Any] = {"LEASE_SECONDS": 4, "SWEEP_SECONDS": 1, "QUEUED_SECONDS": 30}
    if request.param == "redis":
        yield project.with_settings(reliable=soon)
    elif missing := why_no_rabbit():
        pytest.skip(missing)
    else:
        soon["REDIS_URL"] = project.redis.url()
        with RabbitServer(tmp_path) as server:
            yield project.with_settings(reliable=soon, broker_url=server.url())


@promise("waiting-is-safe")
def test_each_begins_once_at_its_moment_whoever_is_killed(timely: Project, scale: Scale) -> None:
    count, seconds = scale.of(full=10_000, small=400), scale.of(full=60, small=8)
    workers = [timely.start_worker(name) for name in ("one", "two", "three")]
    begins_at = time.time() + scale.of(full=25, small=3)
    moments = {}
    for n in range(count):
        at = begins_at + seconds * n / count
        eta = datetime.fromtimestamp(at, timezone.utc)
        moments[timely.send("work", 0, eta=eta, ignore_result=True).id] = at

    kills = [(begins_at + seconds * share, workers) for share in (0.3, 0.6)]
    for at, living in kills:
        wait_for(lambda at=at: time.time() >= at, 120, "the moment of the kill")
        _waker(timely, living).kill_group()

    effects = timely.effects
    wait_for(lambda: {r.task_id for r in effects.finished()} >= moments.keys(), 120, "all ran")
    runs = effects.runs()
    # What ran in a killed worker's two processes runs again.
    assert len(runs) - count <= 2 * len(kills)
    first = {run.task_id: run.started_at for run in reversed(runs)}
    late = [first[one] - at for one, at in moments.items()]
    assert min(late) > -0.005
    soon = [one for one in late if one < 1]
    print(
        f"\n{count} moments in {seconds} s, the waker killed twice: "
        f"{count - len(soon)} begin more than a second late, at most {max(late):.2f} s; "
        f"of the others p50 {percentile(soon, 50):.4f} s, p99 {percentile(soon, 99):.4f} s"
    )


def _waker(project: Project, workers: list[Worker]) -> Worker:
    """Return the worker that wakes the fleet's tasks, as the ledger knows it."""
    ledger = reliable_of(project.app).ledger
    client = project.redis.client()

    def known() -> Worker | None:
        name = (client.get(ledger.keys.begin + "waker") or b"").decode().partition("@")[0]
        return next((one for one in workers if one.is_running and one.name == name), None)

    return wait_for(known, 30, "a waker that lives")

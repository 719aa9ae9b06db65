"""The figures of limited tasks; small unless `--full` is given.

`-s` shows the figures.
"""

from __future__ import annotations

import time

import pytest

from tests.conftest import Scale
from tests.integration.conftest import Project
from tests.integration.figures import percentile, wait_until_settled
from tests.integration.project.limited import add_tasks
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full


def test_four_workers_together_keep_to_one_rate(project: Project, scale: Scale) -> None:
    add_tasks(project.app)
    rate = scale.of(full=100, small=20)
    n_tasks = rate * scale.of(full=15, small=3)
    client = project.effects.client
    project.start_workers(
        *"abcd"[: scale.of(full=4, small=2)],
        app="tests.integration.project.limited",
        concurrency=2,
        environ={"RATE": f"{rate}/s"},
    )
    limited, unlimited = project.task("limited"), project.task("unlimited")
    seconds, micros = client.time()
    asked_at = seconds * 1_000_000 + micros
    for _ in range(n_tasks):
        limited.apply_async()
    # One object has more than it may run for long; the others have nothing to do with that.
    for _ in range(20):
        project.send("limited_each", "busy")
    for n in range(10):
        project.send("limited_each", f"quiet {n}")
    on_its_way = scale.of(full=200, small=20)
    for _ in range(on_its_way):
        seconds, micros = client.time()
        unlimited.apply_async((seconds + micros / 1e6,))
        time.sleep(0.02)
    wait_for(lambda: client.llen("begun") == n_tasks, 60, "all have begun")
    wait_for(lambda: client.llen("on its way") == on_its_way, 30, "the others, too")
    wait_for(lambda: client.llen("begun busy") == 20, 30, "those of the busy object")
    assert [client.llen(f"begun quiet {n}") for n in range(10)] == [1] * 10
    wait_until_settled(project.redis, 30)

    moments = sorted(int(one) for one in client.lrange("begun", 0, -1))
    took = (moments[-1] - moments[0]) / 1e6
    found = (n_tasks - 1) / took
    # Of a second: what one has, at most, beside what is late from the one before.
    most = max(sum(m <= one < m + 1_000_000 for one in moments) for m in moments)
    busy = sorted(int(one) for one in client.lrange("begun busy", 0, -1))
    waits = [float(one) for one in client.lrange("on its way", 0, -1)]
    quiet = [int(client.lindex(f"begun quiet {n}", 0)) for n in range(10)]
    print(
        f"{n_tasks} tasks at {rate}/s: {found:.2f}/s, at most {most} in a second; "
        f"an object's at 2/s: {19e6 / (busy[-1] - busy[0]):.2f}/s; others beside it waited "
        f"{percentile(waits, 50) * 1000:.0f} ms (p50), {percentile(waits, 99) * 1000:.0f} ms (p99)"
    )
    # Nobody began before its moment, so there were never more than the rate allows since it was
    # asked for.  Who is late does so on a machine that is busy.
    assert all((one - asked_at) * rate / 1e6 > n - 1 for n, one in enumerate(moments))
    assert (busy[-1] - busy[0]) / 1e6 > 19 * 0.5 - 0.6
    assert max(quiet) < busy[-1]
    if scale.is_full:
        assert abs(found - rate) <= rate * 0.02

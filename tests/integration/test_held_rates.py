"""Limited tasks keep to their rate, together and after something has held them; who floods leaves
others their turn.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from celery_reliable.app import reliable_of
from celery_reliable.orders import OrderKind
from tests.conftest import Scale
from tests.integration.conftest import Project
from tests.integration.figures import LEDGER, percentile, wait_until_settled
from tests.integration.project.limited import add_tasks
from tests.support.effects import Run
from tests.support.promises import promise
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full

PER_SECOND = 5
N_TASKS = 30
#: A moment has lapsed after so long.
LAPSED_SECONDS = 2.5


@pytest.mark.parametrize("hold", ["strike", "death"])
def test_what_was_held_begins_by_its_rate(project: Project, hold: str) -> None:
    add_tasks(project.app)
    orders = reliable_of(project.app).ledger.orders
    client = project.effects.client
    options = {"app": "tests.integration.project.limited", "environ": {"RATE": f"{PER_SECOND}/s"}}
    worker = project.start_worker("one", **options)
    for _ in range(N_TASKS):
        project.send("limited")
    wait_for(lambda: client.llen("begun") >= 2, 20, "the first begin")
    if hold == "strike":
        order = orders.give(
            OrderKind.STRIKE, "project.limited", by="ann", why="the partner is down"
        )
    else:
        worker.kill_group()
    held_until = project.effects.now() + N_TASKS / PER_SECOND + LAPSED_SECONDS
    wait_for(lambda: project.effects.now() > held_until, 60, "their moments lapse")
    if hold == "strike":
        wait_for(
            lambda: orders.waiting([order.id])[order.id] + client.llen("begun") == N_TASKS,
            30,
            "all wait for the order",
        )
    n_before = client.llen("begun")
    assert n_before <= N_TASKS - 6

    if hold == "strike":
        orders.resume(order.id, by="ann", limit=1000)
    else:
        project.start_worker("two", **options)

    wait_until_settled(project.redis, 60)
    # What ran as its worker was killed has begun twice.
    assert client.llen("begun") - N_TASKS in ((0, 1) if hold == "death" else (0,))
    begun = sorted(int(one) for one in client.lrange("begun", n_before, -1))
    # One may be late by as much as another is not.
    too_early = [n for n, one in enumerate(begun) if (one - begun[0]) * PER_SECOND / 1e6 <= n - 2]
    assert too_early == []


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


SECONDS, LONGER_SECONDS = 0.02, 0.05


@promise("line-in-order")
def test_a_tenant_that_floods_leaves_the_others_their_turn(project: Project, scale: Scale) -> None:
    n_flood, n_calls = scale.of(full=100_000, small=500), scale.of(full=300, small=10)
    # Two of four processes are A's at most.
    project.start_worker("worker", concurrency=4)
    effects, client = project.effects, project.redis.client()
    task: Any = project.task("placed")

    def call_seldom(tenant: str) -> dict[str, float]:
        sent = {}
        for number in range(n_calls):
            wait_for(lambda n=number: len(effects.runs(tenant)) >= n - 5, 60, f"{tenant}'s turn")
            at = effects.now()
            sent[str(task.apply_async((tenant, 0.0), ignore_result=True).id)] = at
            until = at + 0.1
            wait_for(lambda until=until: effects.now() > until, 10, "the next call")
        wait_for(lambda: len(effects.finished(tenant)) == n_calls, 60, f"all of {tenant}'s")
        return sent

    def waits(tenant: str, sent: dict[str, float]) -> list[float]:
        return [run.started_at - sent[run.task_id] for run in effects.runs(tenant)]

    alone = waits("alone", call_seldom("alone"))
    with ThreadPoolExecutor(4) as publishers:
        flood = [
            publishers.submit(task.apply_async, ("A", SECONDS), ignore_result=True)
            for _ in range(n_flood)
        ]
        for one in flood:
            one.result()
    beside = waits("B", call_seldom("B"))
    (line,) = client.keys(LEDGER + "waiting:*")
    left = client.zcard(line)
    passed_on = per_second(effects.runs("A"))
    print(
        f"\n{n_flood} of A, {left} in line when B is done: B waits "
        f"p50 {percentile(beside, 50) * 1000:.1f} ms, p99 {percentile(beside, 99) * 1000:.1f} ms, "
        f"alone p50 {percentile(alone, 50) * 1000:.1f} ms, p99 {percentile(alone, 99) * 1000:.1f} "
        f"ms; A's two places pass {passed_on:.0f} tasks/s"
    )
    # B came last, and was done while nearly all of A stood in line; A went on meanwhile.
    assert left > 0
    assert effects.finished("A")
    assert not client.llen("celery") > 4
    client.close()


def per_second(runs: Sequence[Run]) -> float:
    """How many of these runs ended in a second, between the first and the last of them."""
    ended = sorted(run.ended_at for run in runs if run.ended_at is not None)
    return (len(ended) - 1) / (ended[-1] - ended[0])

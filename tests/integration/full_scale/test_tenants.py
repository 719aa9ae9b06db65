"""A tenant that floods, with places taken at publication, leaves the others their turn."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.conftest import Scale
from tests.integration.conftest import Project
from tests.integration.figures import LEDGER, percentile
from tests.support.effects import Run
from tests.support.promises import promise
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full

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

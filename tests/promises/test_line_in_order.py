"""Who waits in line goes on in order.

With ``on_conflict="wait"`` a task waits in the order of publication, in no queue and in no worker.
"""

from __future__ import annotations

import os
import signal

from tests.integration.commands import Run
from tests.integration.conftest import SOON, Project
from tests.integration.figures import most_at_once, wait_until_free
from tests.support.promises import promise
from tests.support.waiting import wait_for

LINES = "{reliable:0}:waiting:*"


@promise("one-object")
@promise("line-in-order")
def test_who_waits_goes_on_in_order_as_soon_as_there_is_a_place(shared: Project, run: Run) -> None:
    """A killed task keeps its place, so does a retried one; a revoked one leaves the line."""
    effects, client = shared.effects, shared.redis.client()
    lines = {
        name: [shared.send(name, f"{name} object", 0.15) for _ in range(n)]
        for name, n in (("in_line", 6), ("three", 9), ("placed", 6))
    }
    roomy = [shared.send("roomy", 0.15) for _ in range(5)]
    # Calls about another object say that it has one place.
    own = {
        name: [shared.send(name, f"own {name}", 0.1, at_most=1) for _ in range(4)]
        for name in ("three", "placed")
    }

    for results in [*lines.values(), roomy, *own.values()]:
        for result in results:
            result.get(timeout=30)
    wait_until_free(shared.redis)
    assert not client.keys(LINES)
    for name, most in (("in_line", 1), ("three", 3), ("placed", 2)):
        runs = effects.runs(f"{name} object")
        assert most_at_once(runs) <= most
        assert [run.attempt for run in runs] == [1] * len(lines[name])
    assert most_at_once(effects.runs("roomy")) == 2
    for name, results in own.items():
        assert most_at_once(effects.runs(f"own {name}")) == 1
        assert [run.attempt for run in effects.runs(f"own {name}")] == [1] * len(results)

    # Who is killed keeps the place, and those behind wait.
    holder = shared.send("in_line_gate", "gated", "gate")
    first_run = effects.run_of(holder.id)
    waiting = [shared.send("in_line_gate", "gated", "gate") for _ in range(6)]
    wait_for(lambda: [client.zcard(one) for one in client.keys(LINES)] == [6], 10, "a line")
    os.kill(first_run.pid, signal.SIGKILL)
    effects.run_of(holder.id, 2)
    assert len(effects.runs("gated")) == 2

    # One that is called off leaves the line; its place is nobody's.
    why = run("show", waiting[2].id, "--json").json["why"]["sentence"]
    assert f"with 2 before it; {holder.id} has it" in why
    assert run("revoke", waiting[0].id, "--yes").code == 0
    effects.open_gate("gate")
    assert waiting[2].get(timeout=20) == "gated"
    waiting[5].get(timeout=20)
    assert [run.task_id for run in effects.runs("gated")][2:] == [one.id for one in waiting[1:]]
    wait_until_free(shared.redis)
    assert not client.keys(LINES)

    # A retry keeps a place that was taken at the publication.
    retried = shared.send("placed_follow", "kept", ["retry:other gate", "finish"])
    behind = shared.send("placed_follow", "kept", ["finish"])
    effects.open_gate("other gate")
    behind.get(timeout=20)
    assert effects.runs(behind.id)[0].started_at > effects.finished(retried.id)[-1].ended_at
    wait_until_free(shared.redis)
    assert not client.keys(LINES)
    client.close()


@promise("line-in-order")
def test_who_leaves_a_line_has_the_next_one_looked_at(project: Project, run: Run) -> None:
    """The first may take fewer of the places than those behind it, and leaves the line."""
    soon = project.with_settings(reliable=SOON)
    soon.start_worker("one", concurrency=3)
    holder = soon.begin("placed", "object", 120, at_most=1)
    first = soon.send("placed", "object", 0, at_most=1)
    behind = [soon.send("placed", "object", 0) for _ in range(3)]
    client = soon.redis.client()
    assert [client.zcard(one) for one in client.keys(LINES)] == [4]

    assert run("revoke", first.id, "--yes", project=soon).code == 0

    for one in behind:
        assert one.get(timeout=60) == "object"
    assert not soon.effects.runs(first.id)
    assert not soon.effects.finished(holder.id)
    client.close()

"""Tasks that end well: run once, settled once, whatever users override and whoever sends them."""

from __future__ import annotations

import pytest
from celery import chain, chord, group

from tests.integration.conftest import Project
from tests.integration.figures import wait_until_gone, wait_until_settled
from tests.support.processes import Worker
from tests.support.waiting import wait_for


@pytest.mark.full
def test_whatever_a_task_overrides_it_is_protected_all_the_same(
    awkward: Project, awkward_worker: Worker
) -> None:
    # Hooks without `super`.
    hooked = awkward.send("hooked", 2)
    assert hooked.get(timeout=15) == "hooked"
    assert [run.attempt for run in awkward.effects.runs(hooked.id)] == [1, 2, 3]
    wait_until_gone(awkward.redis, hooked.id)
    assert awkward.effects.client.lrange("hooks", -4, -1) == [
        b"before_start 2",
        b"before_start 3",
        b"on_success",
        b"after_return",
    ]
    # No results.
    silent = awkward.send("silent", 2)
    wait_for(lambda: len(awkward.effects.runs(silent.id)) == 3, 15, "the third run")
    wait_until_gone(awkward.redis, silent.id)
    # Pickled and compressed messages.
    pickled = awkward.send("pickled", {1, 2})
    assert pickled.get(timeout=15) == "{1, 2}"
    wait_until_gone(awkward.redis, pickled.id)
    # A canvas that is quicker than its host.
    replaced = awkward.send("replaced", [1, 2, 3])
    assert replaced.get(timeout=10) == 6
    assert [run.attempt for run in awkward.effects.runs(replaced.id)] == [1, 2]
    wait_until_gone(awkward.redis, replaced.id)
    client = awkward.redis.client()
    wait_for(lambda: not client.keys("{reliable:0}:claims:*"), 5, "no claim is left")


def test_eager_and_direct_calls_touch_nothing(project: Project) -> None:
    assert project.task("add")(1, 2) == 3
    assert project.task("add").apply((1, 2)).get() == 3
    project.app.conf.task_always_eager = True
    assert project.send("add", 1, 2).get() == 3
    assert project.send("locked", "object", 0.01).get() == "object"
    assert project.send("flaky", 1).get() == "run 2"
    assert not project.redis.client().keys("*reliable*")
    assert {run.attempt for run in project.effects.runs()} == {1}


@pytest.mark.full
def test_a_retry_waits_until_its_body_has_unwound(awkward: Project, awkward_worker: Worker) -> None:
    awkward.start_worker("other", chatty=True, environ={"C_FORCE_ROOT": "yes"})
    result = awkward.send("unwinding", 1.5)
    assert result.get(timeout=15) == "run 2"
    first, second = awkward.effects.runs(result.id)
    assert first.ended_at is not None
    assert second.started_at >= first.ended_at
    assert not awkward.effects.overlaps()
    wait_until_gone(awkward.redis, result.id)


def test_a_canvas_runs_whole_also_in_the_place_of_its_host(shared: Project) -> None:
    add, total = shared.task("add"), shared.task("total")
    assert chain(add.s(1, 2), add.s(3), add.s(4)).apply_async().get(timeout=15) == 10
    assert group(add.s(n, n) for n in range(5)).apply_async().get(timeout=15) == [0, 2, 4, 6, 8]
    assert chord((add.s(n, n) for n in range(5)), total.s()).apply_async().get(timeout=15) == 20
    replaced = shared.send("replaced", [1, 2, 3, 4])
    assert replaced.get(timeout=15) == 10
    # The last member runs under the host's id, and its fencing token has grown.
    assert [run.attempt for run in shared.effects.runs(replaced.id)] == [1, 2]
    wait_until_settled(shared.redis, 10)


def test_a_message_without_our_header_runs_and_is_protected_from_its_claim_on(
    shared: Project, stock_project: Project
) -> None:
    # Published by a producer without the package, or before it was adopted.
    result = stock_project.send("poison_times", 1)
    wait_for(lambda: len(shared.effects.runs(result.id)) == 2, 15, "the second run")
    assert [run.attempt for run in shared.effects.runs(result.id)] == [1, 2]
    assert result.get(timeout=10) == "run 2"
    wait_until_settled(shared.redis, 10)

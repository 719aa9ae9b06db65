"""What can still be asked about a task that has ended, of real tasks in real workers."""

from __future__ import annotations

import os

from celery_reliable.operations import Desk, Wait
from tests.integration.commands import invoke
from tests.integration.conftest import ONE_EACH, Project
from tests.support.waiting import wait_for


def test_a_task_whose_process_was_killed_can_be_asked_about_when_it_has_ended(
    project: Project, desk: Desk
) -> None:
    worker = project.start_worker("one", options=ONE_EACH)
    result = project.send("gate", "door")
    killed = project.effects.run_of(result.id).pid
    assert killed in worker.children()
    worker.kill_child(killed)
    second = project.effects.run_of(result.id, 2).pid
    project.effects.open_gate("door")
    result.get(timeout=20)

    view = wait_for(
        lambda: (found := desk.tasks.get(result.id)).state == "ended" and found, 10, "its end"
    )

    assert (view.name, view.outcome, view.attempts, view.losses) == (
        "project.gate",
        "SUCCESS",
        2,
        1,
    )
    # A worker's main process may claim for one of its pool's.
    assert view.why.kind is Wait.ENDED
    assert view.why.pid in (worker.pid, second)
    assert view.why.worker.startswith("one@")
    assert "ended as SUCCESS" in view.why.sentence
    whats = [one.what for one in view.history]
    assert whats == ["published", "started", "lost", "started", "ended"]
    _, begun, entry, *_ = view.history
    assert (begun.attempt, entry.attempt) == (1, 1)
    assert entry.pid in (worker.pid, killed)
    assert entry.worker.startswith("one@")
    assert "child_lost" in entry.cause
    assert "9" in entry.cause
    assert view.published_at <= begun.at <= entry.at <= view.why.since


def test_a_retry_a_burial_and_a_discarded_letter(shared: Project, desk: Desk) -> None:
    retried = shared.send("flaky", 2, 0)
    retried.get(timeout=30)
    failed = shared.send("failing", "no such customer")
    wait_for(lambda: desk.tasks.get(failed.id).state == "dead", 20, "a dead letter")
    desk.letters.discard(failed.id)

    found = wait_for(
        lambda: (one := desk.tasks.get(retried.id)).state == "ended" and one, 10, "its end"
    )
    assert (found.outcome, found.attempts, found.losses) == ("SUCCESS", 3, 0)
    # Of two retries the last is told, and that there were two.
    whats = [one.what for one in found.history]
    assert whats == ["published", "started", "retried", "started", "ended"]
    assert found.history[2].cause == "2 times"
    assert found.publisher == ""
    gone = desk.tasks.get(failed.id)
    assert (gone.state, gone.outcome) == ("ended", "DISCARDED")
    assert "no such customer" in gone.history[-2].cause


def test_what_was_refused_stands_in_it_though_no_record_was_changed(
    shared: Project, desk: Desk
) -> None:
    held = shared.begin("locked_gate", "object", "door")
    skipped = shared.send("locked_gate", "object", "door")
    # It is refused first, and settled then.
    view = wait_for(
        lambda: not (one := desk.tasks.get(skipped.id)).is_known and one.history and one,
        20,
        "its refusal",
    )

    (cause,) = [one.cause for one in view.history if one.what == "skipped"]
    assert cause == f"holder {held.id}"
    running = desk.tasks.get(held.id)
    assert running.state == "running"
    assert [one.what for one in running.history] == ["published", "started"]
    assert f"{os.getpid()}@" in running.publisher
    desk.ledger.happenings.note("task_fenced", {"id": held.id, "attempt": 1, "state": "taken"})
    desk.ledger.happenings.note("task_fenced", {"id": "*", "name": "*", "attempt": 1})
    history = [one.what for one in desk.tasks.get(held.id).history]
    assert history == ["published", "started", "fenced"]
    shown = invoke(shared.app, "show", skipped.id)
    assert f"holder {held.id}" in " ".join(shown.output.split())
    shared.effects.open_gate("door")
    held.get(timeout=20)


def test_as_many_are_kept_as_the_settings_say_and_a_sample_of_the_others(project: Project) -> None:
    project = project.with_settings(reliable={"KEEP_ENDED": 2, "KEEP_ENDED_ONE_IN": 1})
    project.start_worker("one")
    with Desk(project.app) as desk:
        for name in ("project.work", "project.work", "project.undeadly"):
            result = project.app.send_task(name, (0,) if name == "project.work" else ())
            wait_for(
                lambda i=result.id: desk.tasks.get(i).state == "ended", 20, f"{name} has ended"
            )
        kept = desk.ledger.ended_tasks()

    assert [one.outcome for one in kept] == ["FAILURE", "SUCCESS"]

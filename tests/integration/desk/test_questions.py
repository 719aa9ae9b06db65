"""The fourteen questions of whoever is called at night: one command answers each, or two."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from celery_reliable.operations import Desk
from tests.integration.commands import Ran, Run
from tests.integration.conftest import Project
from tests.integration.letters import put
from tests.support.waiting import wait_for

Ask = Callable[..., Ran]


@pytest.fixture
def ask(soon: Project, run: Run) -> Ask:
    """Give a command, which ends well."""

    def ask(*words: str, **how: str) -> Ran:
        ran = run(*words, project=soon, **how)
        assert ran.code == 0, ran
        return ran

    return ask


@pytest.mark.full
def test_what_waits_what_runs_who_lives_and_what_happened(
    soon: Project, run: Run, ask: Ask
) -> None:
    soon.start_worker("one")
    holder = soon.begin("in_line_gate", "contract 7", "door")
    lost = soon.send("poison_times", 1)
    lost.get(timeout=30)
    later = soon.send("work", 0, countdown=3600)
    for _ in range(3):
        soon.send("work", 0, queue="slow")
    soon.start_worker("two").kill_group()
    deaths = ("events", "--kind", "worker_declared_dead")
    wait_for(lambda: "two@" in ask(*deaths).out, 30, "it is declared dead")
    ask("drain", "one@*", "--for", "15m", "--reason", "a new kernel")

    # 1: what waits, and how old is it, of each queue?
    status = ask("status")
    assert "3 " in next(one for one in status.out.splitlines() if one.startswith("slow "))
    # 2: why does it not run?
    assert "waits in the ledger" in ask("show", later.id).out
    # 3: what runs where, since when?
    out = " ".join(ask("workers").out.split())
    assert f"project.in_line_gate[{holder.id}] since" in out
    # 4: who lives, who died, who is drained?
    assert "drained" in out
    assert "two@" in ask(*deaths).out
    # 5: what was lost in the last hour, and why?
    assert "child_lost" in ask("events", "--kind", "task_lost", "--since", "1h").out
    # 10: who stopped something, why, and until when?
    assert "a new kernel" in ask("orders").out
    # 11: what became of it?
    assert "SIGKILL" in ask("show", lost.id).out
    # 12: is it healthy?
    checked = run("status", "--check", project=soon)
    assert checked.code == 1
    assert "worker_died" in checked.out
    soon.effects.open_gate("door")


@pytest.mark.full
def test_dead_letters_and_what_is_stopped(soon: Project, desk: Desk, ask: Ask) -> None:
    for number in range(3):
        put(soon, f"card-{number}", exception="CardDeclined: 4711")
    put(soon, "one")

    # 6: which kinds of dead letters are there?
    kinds = ask("dead-letters", "groups", "--json").json["groups"]
    assert [(one["exception"], one["count"]) for one in kinds][:1] == [("CardDeclined", 3)]
    # 7: one kind goes back, five a second; first a dry run.
    replay = ("dead-letters", "replay", "--group", kinds[0]["group"], "--rate", "5")
    assert "3 dead letters would be replayed" in ask(*replay, "--dry-run").out
    assert "3 dead letters replayed" in ask(*replay).out
    # 8: one goes back, after a look at its arguments.
    assert "args" in ask("show", "one", "--with-arguments").out
    assert ask("dead-letters", "replay", "one", "--json").json["done"] == 1
    assert desk.tasks.get("one").state == "queued"
    # 9: one task stops everywhere, and goes on.  14: a worker is taken out.
    assert "wrong prices" in ask("strike", "project.work", "--reason", "wrong prices").out
    assert "1 order" in ask("resume", "project.work").out
    assert "drained" in ask("drain", "one", "--for", "15m", "--later").out

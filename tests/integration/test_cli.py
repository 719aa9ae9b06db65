"""The commands as operators run them: `celery -A … reliable …`, each a process of its own."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from celery_reliable.app import reliable_of
from celery_reliable.model import Reason
from tests.integration.commands import Run
from tests.integration.conftest import Project
from tests.integration.figures import wait_until_settled
from tests.integration.letters import put
from tests.support.waiting import wait_for


def letters(run: Run) -> list[Any]:
    """The dead letters, as programs are told of them."""
    listed: list[Any] = run("dead-letters", "list", "--json").json["items"]
    return listed


def test_the_whole_round_of_a_failed_task(shared: Project, run: Run) -> None:
    steps = ["retry", "fail", "retry", "fail", "finish"]
    result = shared.send("follow", steps, 0, 1)
    # The list says so by itself when the letter is there.
    (listed,) = wait_for(lambda: letters(run), 30, "the dead letter")
    facts = {"task_id": result.id, "reason": "failed", "attempts": 2, "losses": 0}
    assert facts.items() <= listed.items()

    table = run("dead-letters", "list")
    assert (table.code, table.err) == (0, "")
    assert result.id in table.out
    assert "project.follow" in table.out
    assert table.out.endswith("\n1 dead letter, 1 looked at\n")
    assert max(map(len, table.out.splitlines())) <= 80
    # Each in one piece, in a terminal of 80 columns.
    (line,) = [line for line in table.out.splitlines() if line.startswith(result.id)]
    assert re.fullmatch(rf"{result.id}  dead +\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d *", line)
    assert "failed (Broken: in run 2)" in " ".join(table.out.split())

    shown = run("show", result.id)
    assert shown.code == 0
    assert max(map(len, shown.out.partition("Traceback")[0].splitlines())) <= 80
    assert re.search(r"(?m)^at \(UTC\) +what +attempt$", shown.out)
    assert re.search(r"(?m)^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  failed +2 *$", shown.out)
    assert "tasks.py" in shown.out.partition("Traceback")[2]
    assert '"finish"' not in shown.out
    assert "(redacted)" in shown.out
    full = run("show", result.id, "--json", "--with-arguments").json
    assert (full["args"], full["queue"]) == ([steps, 0, 1], "celery")
    assert full["headers"]["id"] == result.id
    assert run("show", result.id, "--json").json["args"] == "(redacted)"

    replayed = run("dead-letters", "replay", result.id, "--json")
    assert (replayed.json["done"], replayed.json["unsent"]) == (1, 0)
    # The retries count anew: again one retry, and then the end.
    shared.effects.run_of(result.id, 4)
    wait_for(lambda: letters(run), 30, "the second burial")
    again = run("show", result.id, "--json").json
    life = ["retried", "failed"]
    whats = [one["what"] for one in again["history"] if one["what"] in (*life, "replayed")]
    assert whats == [*life, "replayed", *life]
    assert (again["attempts"], again["published_at"]) == (4, full["published_at"])
    assert run("dead-letters", "replay", result.id).out == "1 dead letter replayed\n"
    wait_for(lambda: shared.effects.finished(result.id), 20, "its fifth run")
    assert [one.attempt for one in shared.effects.runs(result.id)] == [1, 2, 3, 4, 5]
    wait_until_settled(shared.redis, 10)
    assert letters(run) == []
    assert run("dead-letters", "list").out == "0 dead letters, 0 looked at\n"


def test_an_unknown_id_is_one_sentence_and_code_1(run: Run) -> None:
    for command in ("replay", "discard"):
        ran = run("dead-letters", command, "nobody", "--yes", "--json")
        assert (ran.code, ran.json["gone"]) == (1, 1)

    ran = run("show", "nobody", "--json")

    assert (ran.code, ran.json["state"]) == (0, "absent")


def test_a_redis_that_is_not_there_is_one_paragraph_without_the_password(
    project: Project, run: Run
) -> None:
    away = project.with_settings(broker_url="redis://user:s3cret@127.0.0.1:1/0")

    commands = ("dead-letters list --json", "workers --json", "sweep", "status")
    # Each waits for a while.
    with ThreadPoolExecutor(len(commands)) as operators:
        all_ran = list(operators.map(lambda words: run(*words.split(), project=away), commands))
    for ran in all_ran:
        assert (ran.code, ran.out) == (3, "")
        assert "127.0.0.1:1" in ran.err
        assert "s3cret" not in ran.err
        assert "Traceback" not in ran.err
        assert len(ran.err.splitlines()) == 1
    away.close()


def test_wrong_settings_are_told_without_a_traceback(project: Project, run: Run) -> None:
    wrong = project.with_settings(reliable={"LEASE_SECOND": 3})

    ran = run("dead-letters", "list", project=wrong)

    assert (ran.code, ran.out) == (1, "")
    assert "Did you mean 'LEASE_SECONDS'?" in ran.err
    assert "Traceback" not in ran.err


def test_an_option_of_a_call_shows_no_argument_unless_it_is_asked_for(
    shared: Project, run: Run
) -> None:
    # Celery makes a property of the message of each option that it does not know.
    result = shared.send(
        "failing",
        "as told",
        argsrepr="(secret,)",
        kwargsrepr="{secret}",
        tenant="secret",
        stamped_headers=["customer"],
        customer="secret",
    )
    wait_for(lambda: letters(run), 30, "the dead letter")

    for command in (("show", result.id), ("tasks", "--state", "dead"), ("dead-letters", "list")):
        for as_json in ([], ["--json"]):
            assert "secret" not in run(*command, *as_json).out
    shown = run("show", result.id, "--json", "--with-arguments").json
    assert (shown["args"], shown["kwargs"]) == (["as told"], {})
    assert shown["properties"]["tenant"] == "secret"
    assert shown["headers"]["stamps"] == {"customer": "secret"}
    told = run("show", result.id, "--json").json
    assert told["properties"]["correlation_id"] == result.id
    assert told["args"] == told["kwargs"] == "(redacted)"


def test_a_name_forges_no_line(project: Project, run: Run) -> None:
    project.start_worker("one")
    forged = "mail\nforged \u202e99\tforged\r forged\u2028forged \x1b[2J\x07"
    queued = project.send("work", 0.01, queue=forged)
    parked = project.send("work", 0.01, task_id=f"id-{forged}", countdown=3600, queue=forged)
    reliable_of(project.app).ledger.bury_message(
        f"dead-{forged}",
        Reason.FAILED,
        exception=f"Error: {forged}",
        traceback="Traceback\nThis stands where a line of the command begins",
        message="{}",
        name=forged,
    )
    order = run("pause", forged, "--later", "--reason", forged, "--json").json["id"]

    wrong = []
    for command in (
        ["status"],
        ["tasks"],
        ["tasks", "--state", "dead"],
        ["show", queued.id],
        ["show", parked.id],
        ["show", f"dead-{forged}"],
        ["show", f"none-{forged}"],
        ["dead-letters", "list"],
        ["dead-letters", "groups"],
        ["show", f"dead-{forged}"],
        ["show", f"none-{forged}"],
        ["dead-letters", "replay", f"none-{forged}"],
        ["orders"],
        ["audit"],
        ["events", "--limit", "100"],
        ["revoke", f"none-{forged}"],
        ["objects", "--task", forged, "--object-id", forged],
        ["drain", forged],
        ["strike", forged],
        ["resume", order],
        ["resume", f"none-{forged}"],
        ["purge", "--queues", forged, "--yes"],
    ):
        ran = run(*command)
        told = f"{ran.out}{ran.err}"
        if (
            re.search(r"mail\s*\n\s*forged|^This stands", told, re.MULTILINE)
            or set("\r\u202e\u2028\x1b\x07") & set(told)
            or "Traceback (most" in told
        ):
            wrong.append((command, told))
    assert not wrong, "\n".join(f"{command}:\n{told}" for command, told in wrong)


def test_long_ids_are_folded_and_never_cut(project: Project, run: Run) -> None:
    task_id = "import-" + "0123456789" * 9
    put(project, task_id)

    out = run("dead-letters", "list").out

    assert max(map(len, out.splitlines())) <= 80
    assert task_id in "".join(re.split(r"\s", line)[0] for line in out.splitlines()[1:])


def test_what_is_not_installed_is_named_and_nothing_else_needs_it(
    project: Project, run: Run, tmp_path: Path
) -> None:
    for name in ("rich", "prometheus_client"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('not installed')\n")
    hidden = {"PYTHONPATH": str(tmp_path)}
    assert run("status", "--check", **hidden).code == 0
    put(project, "one")

    for words, code, extra in (("dead-letters list", 2, "cli"), ("metrics", 1, "metrics")):
        ran = run(*words.split(), **hidden)
        assert (ran.code, ran.out) == (code, "")
        assert f'pip install "celery-reliable[{extra}]"' in ran.err
    for words in ("dead-letters list --json", "dead-letters discard one --yes"):
        assert run(*words.split(), **hidden).code == 0, words


def test_workers_and_passes(project: Project, run: Run) -> None:
    assert run("workers").out == "0 workers\n"
    first = run("sweep", "--json").json
    assert first["ran"] is True
    assert first["report"]["declared"] == 0
    project.start_worker("one")
    result = project.begin("gate", "door")

    (row,) = run("workers", "--json").json["items"]

    assert row["worker"].startswith("one@")
    assert (row["state"], row["claims"]) == ("alive", 1)
    assert 0 < row["seconds_left"] <= 10
    table = run("workers").out
    assert "alive" in table
    assert table.endswith("\n1 worker\n")
    assert max(map(len, table.splitlines())) <= 80
    # A worker runs passes all the time; either answer is one.
    swept = run("sweep")
    assert swept.code == 0
    assert re.match("ran +(true|false)", swept.out)
    project.effects.open_gate("door")
    result.get(timeout=10)


def test_json_is_the_same_for_every_locale(project: Project, run: Run) -> None:
    put(project, "ключ")

    ran = run("dead-letters", "list", "--json", LC_ALL="C", PYTHONUTF8="0")

    assert ran.code == 0
    parsed: Any = json.loads(ran.out)
    assert [one["task_id"] for one in parsed["items"]] == ["ключ"]

"""The desk at a terminal: tables of 80 columns, JSON that stays, exit codes for probes, Ctrl-C."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from celery_reliable.app import reliable_of
from celery_reliable.model import Reason
from celery_reliable.operations import Desk
from tests.integration.commands import APP, Run, start_reliable
from tests.integration.conftest import Project
from tests.integration.figures import DUE, LEDGER
from tests.integration.letters import put
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for


def fits(out: str) -> bool:
    return max(map(len, out.splitlines())) <= 80


@pytest.mark.full
def test_from_status_to_the_cause(project: Project, run: Run) -> None:
    project.start_worker("one")
    holder = project.begin("in_line_gate", "contract 7", "door")
    letter = project.send("failing", "no such customer")
    parked = project.send("work", 0, countdown=3600)
    wait_for(lambda: run("show", letter.id, "--json").json["state"] == "dead", 30, "it is dead")
    wait_for(lambda: run("status", "--json").json["slots"] == 2, 30, "a beat told of its slots")

    status = run("status")
    assert (status.code, status.err) == (0, "")
    assert fits(status.out)
    assert "1 running, 0 queued, 1 waiting, 1 dead (1 failed)" in status.out
    assert re.search(r"one@\S+ +alive +1 +2 ", status.out)
    assert "Nothing is wrong." in status.out

    told = run("status", "--json").json
    assert told["tasks"] == {
        "queued": 0,
        "waiting": 1,
        "owed": 0,
        "running": 1,
        "dead": 1,
    }
    assert (told["is_exact"], told["dead_by_reason"], told["findings"]) == (True, {"failed": 1}, [])
    assert told["workers_by_state"] == {"alive": 1, "lapsed": 0, "dead": 0}
    assert (told["slots"], told["saturation"]) == (2, 0.5)
    assert told["last_pass"]["seconds_ago"] < 10
    assert told["ledger"]["maxmemory_policy"] == "noeviction"
    assert [(one["name"], one["depth"]) for one in told["queues"]] == [("celery", 0)]

    tasks = run("tasks")
    assert fits(tasks.out)
    assert tasks.out.index(holder.id) < tasks.out.index(parked.id)
    assert letter.id not in tasks.out
    listed = run("tasks", "--state", "waiting", "--json").json
    assert [one["task_id"] for one in listed["items"]] == [parked.id]
    assert listed["items"][0]["why"]["kind"] == "eta"
    assert run("tasks", "--task", "no.such.*", "--json").json["items"] == []
    first = run("tasks", "--limit", "1", "--json").json
    (second,) = run("tasks", "--limit", "1", "--cursor", first["cursor"], "--json").json["items"]
    assert {first["items"][0]["task_id"], second["task_id"]} == {holder.id, parked.id}

    shown = run("show", letter.id)
    # But for the lines of a traceback.
    assert fits(shown.out.partition("Traceback")[0])
    assert "no such customer" in shown.out
    assert "door" not in run("show", holder.id).out
    unknown = run("show", "4711")
    assert (unknown.code, "knows no task" in unknown.out) == (0, True)

    named = ("--task", "project.in_line_gate", "--object-id", "contract 7")
    by_name = run("objects", *named, "--json")
    assert by_name.json["holders"][0]["task_id"] == holder.id
    objects = run("objects")
    assert fits(objects.out)
    assert by_name.json["object_key"] in objects.out
    assert "project.in_line_gate 'contract 7'" in " ".join(objects.out.split())
    assert "project.in_line_gate 'contract 7'" in run("show", holder.id).out
    assert "contract 7" in run("objects", "--task", "some.task", "--object-id", "contract 7").out
    assert run("objects", "--task", "alone").code == 2

    assert fits(run("workers").out)
    project.effects.open_gate("door")
    holder.get(timeout=20)


def test_exit_codes_for_probes(project: Project, run: Run) -> None:
    well = run("status", "--check")
    # Nobody has work to do, so that no worker is there is no error.
    assert (well.code, well.err) == (0, "")
    assert well.out.startswith("info: E016 no_worker")
    assert "Nothing is wrong" not in well.out
    project.send("work", 0)

    wrong = run("status", "--check")
    told = run("status", "--check", "--json")

    assert (wrong.code, told.code) == (1, 1)
    assert "error: E016 no_worker" in wrong.out
    assert {one["code"] for one in told.json["findings"]} >= {"E016"}
    keys = {"code", "name", "severity", "message", "hint", "ignored"}
    assert all(one.keys() == keys for one in told.json["findings"])
    project.redis.stop()
    away = run("status", "--check", "--json")
    assert (away.code, away.out) == (3, "")
    assert len(away.err.splitlines()) == 1


COUNT = 100


@pytest.mark.full
def test_an_act_that_is_interrupted_says_how_to_go_on(
    project: Project, desk: Desk, run: Run, tmp_path: Path
) -> None:
    for number in range(COUNT):
        put(project, f"letter-{number}")
    words = ["dead-letters", "replay", "--all", "--yes", "--rate", "10"]
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    process = start_reliable(project, tmp_path, *words, **streams)
    try:
        # Python drops an interrupt that comes while a module is being imported, as for the first.
        wait_for(lambda: desk.letters.count() < COUNT - 3, 60, "something done")
    finally:
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=20)

    assert process.returncode == 130
    assert 0 < desk.letters.count() < COUNT
    *_, interruption, command = said.decode().splitlines()
    assert f" of {COUNT} replayed" in interruption
    # It is a command, which does the rest.
    program, *rest = shlex.split(command)
    words = ["-A", APP, "reliable", *words]
    assert (program, rest[: len(words)]) == ("celery", words)
    assert "--before" in rest
    ran = run(*rest[rest.index("reliable") + 1 :], "--rate", "1000")
    assert ran.code == 0, ran.err
    assert desk.letters.count() == 0


def test_no_line_of_the_log_lands_on_the_operators_terminal(project: Project, run: Run) -> None:
    for act in (("pause", "mail", "--later"), ("strike", "project.work"), ("resume", "mail")):
        told = run(*act)
        assert told.code == 0
        assert "order_" not in told.err + told.out


def _put(redis_server: RedisServer, state: str, count: int, key: str, at_ms: int) -> None:
    with redis_server.client() as client:
        pipe = client.pipeline(transaction=False)
        for number in range(count):
            task_id = f"{state}-{number}"
            row = {"state": state, "name": "project.work", "epoch": "0-1", "published_ms": at_ms}
            pipe.hset(f"{LEDGER}task:{task_id}", mapping=row)
            pipe.zadd(key, {task_id: at_ms + number})
        pipe.execute()


def test_what_waits_is_estimated_and_what_is_dead_is_grouped(project: Project, desk: Desk) -> None:
    now_ms = reliable_of(project.app).ledger.workers.time_ms()
    # Parked ones are due last.
    _put(project.redis, "queued", 3_000, DUE, now_ms)
    _put(project.redis, "waiting", 1_000, DUE, now_ms + 3_600_000)
    ledger = reliable_of(project.app).ledger
    for number, reason in enumerate((Reason.FAILED, Reason.FAILED, Reason.UNPROCESSABLE)):
        how = {"exception": "", "traceback": "", "message": "", "name": ""}
        ledger.bury_message(f"dead-{number}", reason, **how)

    status = desk.status()

    assert not status.is_exact
    assert abs(status.tasks["queued"] - 3_000) <= 20
    assert abs(status.tasks["waiting"] - 1_000) <= 20
    assert status.tasks["dead"] == 3
    assert status.dead_by_reason == {"failed": 2, "unprocessable": 1}


def test_status_reads_so_much_at_the_most(project: Project, desk: Desk) -> None:
    now_ms = reliable_of(project.app).ledger.workers.time_ms()

    def commands() -> int:
        with project.redis.client() as client:
            before = int(client.info("stats")["total_commands_processed"])
            desk.status()
            return int(client.info("stats")["total_commands_processed"]) - before

    _put(project.redis, "queued", 1_000, DUE, now_ms)
    few = commands()
    _put(project.redis, "queued", 10_000, DUE, now_ms)

    assert commands() <= few + 50

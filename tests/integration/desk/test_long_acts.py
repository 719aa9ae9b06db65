"""Acts on many: how far they are, what becomes of them at Ctrl-C, and what they ask before."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from celery_reliable.operations import Desk
from tests.integration.commands import Run, entry_point_path
from tests.integration.conftest import APP, Project
from tests.integration.letters import put
from tests.support.processes import REPOSITORY
from tests.support.proxy import RedisProxy
from tests.support.waiting import wait_for

COUNT = 100


@pytest.mark.full
def test_an_act_tells_each_second_how_far_it_is_and_at_ctrl_c_how_to_go_on(
    project: Project, desk: Desk, run: Run, tmp_path: Path
) -> None:
    for number in range(COUNT):
        put(project, f"letter-{number}")
    words = ["dead-letters", "replay", "--all", "--yes", "--rate", "10"]
    code = interrupted(project, tmp_path, *words)

    assert code == 130
    assert 0 < desk.letters.count() < COUNT
    *said, interruption, command = lines(tmp_path)
    for line in said:
        assert re.fullmatch(
            rf"\d+ of {COUNT} replayed, \d+\.\d/s(, [\d.]+ (s|min)( \d+ s)? left)?", line
        ), line
    assert f" of {COUNT} replayed" in interruption
    # It is a command, which does the rest.
    program, *rest = shlex.split(command)
    words = ["-A", APP, "reliable", *words]
    assert (program, rest[: len(words)]) == ("celery", words)
    assert "--before" in rest
    ran = run(*rest[rest.index("reliable") + 1 :], "--rate", "1000")
    assert ran.code == 0, ran.err
    assert desk.letters.count() == 0


@pytest.mark.full
@pytest.mark.parametrize(
    ("act", "options", "verb"),
    [
        ("revoke", ["--yes"], "revoked"),
        ("move", ["--workers", "elsewhere"], "moved"),
    ],
)
def test_an_act_on_named_tasks_does_so_too(
    act: str,
    options: list[str],
    verb: str,
    project: Project,
    desk: Desk,
    run: Run,
    proxy: RedisProxy,
    tmp_path: Path,
) -> None:
    ids = [project.send("work", 0).id for _ in range(COUNT)]
    proxy.delay(0.05)
    slow = project.with_settings(broker_url=proxy.url(), result_url=proxy.url(1))

    code = interrupted(slow, tmp_path, act, *ids, *options)

    def is_done(task_id: str) -> bool:
        return desk.tasks.get(task_id).why.kind.value != "queue"

    assert code == 130
    *said, interruption, command = lines(tmp_path)
    for line in said:
        assert re.match(rf"\d+ of {COUNT} {verb}, ", line), line
    assert f" of {COUNT} {verb}" in interruption
    assert 0 < sum(map(is_done, ids)) < COUNT
    words = shlex.split(command)
    ran = run(*words[words.index("reliable") + 1 :])
    assert ran.code == 0, ran.err
    assert all(map(is_done, ids))


def interrupted(project: Project, folder: Path, *words: str) -> int:
    """Run the command until it has said twice how far it is, press Ctrl-C, and return its code."""
    environ = project.environ("ready:none", {})
    paths = [entry_point_path(folder), str(REPOSITORY), environ.get("PYTHONPATH", "")]

    def is_under_way() -> bool:
        said = lines(folder)
        return len(said) >= 2 and not said[-1].startswith("0 ")

    with (folder / "err").open("w") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", APP, "reliable", *words],
            cwd=folder,
            env={**environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            stdout=subprocess.DEVNULL,
            stderr=err,
        )
        try:
            wait_for(is_under_way, 60, "two lines, and something done")
        finally:
            process.send_signal(signal.SIGINT)
            code = process.wait(20)
    return code


def lines(folder: Path) -> list[str]:
    return (folder / "err").read_text("utf-8").splitlines()


def test_who_replays_all_is_asked(project: Project, desk: Desk, run: Run) -> None:
    for number in range(3):
        put(project, f"letter-{number}")

    asked = run("dead-letters", "replay", "--all")

    assert asked.code == 1
    assert "Replay 3 dead letters? [y/N]" in asked.err
    assert desk.letters.count() == 3
    assert run("dead-letters", "replay", "--all", answer="y\n").code == 0
    assert desk.letters.count() == 0


def test_no_line_of_the_log_lands_on_the_operators_terminal(project: Project, run: Run) -> None:
    for act in (("pause", "mail", "--later"), ("strike", "project.work"), ("resume", "mail")):
        told = run(*act)
        assert told.code == 0
        assert "order_" not in told.err + told.out

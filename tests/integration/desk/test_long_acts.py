"""Acts on many: how far they are, what becomes of them at Ctrl-C, and what they ask before."""

from __future__ import annotations

import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from celery_reliable.operations import Desk
from tests.integration.commands import APP, Run, start_reliable
from tests.integration.conftest import Project
from tests.integration.letters import put
from tests.support.waiting import wait_for

COUNT = 100


@pytest.mark.full
def test_an_act_that_is_interrupted_says_how_to_go_on(
    project: Project, desk: Desk, run: Run, tmp_path: Path
) -> None:
    for number in range(COUNT):
        put(project, f"letter-{number}")
    words = ["dead-letters", "replay", "--all", "--yes", "--rate", "10"]
    code = interrupted(project, desk, tmp_path, *words)

    assert code == 130
    assert 0 < desk.letters.count() < COUNT
    *_, interruption, command = lines(tmp_path)
    assert f" of {COUNT} replayed" in interruption
    # It is a command, which does the rest.
    program, *rest = shlex.split(command)
    words = ["-A", APP, "reliable", *words]
    assert (program, rest[: len(words)]) == ("celery", words)
    assert "--before" in rest
    ran = run(*rest[rest.index("reliable") + 1 :], "--rate", "1000")
    assert ran.code == 0, ran.err
    assert desk.letters.count() == 0


def interrupted(project: Project, desk: Desk, folder: Path, *words: str) -> int:
    """Run the command until it has done some of it, press Ctrl-C, and return its code."""
    with (folder / "err").open("w") as err:
        process = start_reliable(project, folder, *words, stdout=subprocess.DEVNULL, stderr=err)
        try:
            wait_for(lambda: desk.letters.count() < COUNT, 60, "something done")
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

"""A proof that is broken off leaves no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.processes import REPOSITORY
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full


def end(proof: subprocess.Popen[bytes], started: set[psutil.Process]) -> None:
    """Leave nothing behind, whatever the proof did."""
    proof.kill()
    proof.communicate()
    for one in started:
        if one.is_running():
            one.kill()


def test_a_soak_that_is_told_twice_to_end_ends_all_that_it_has_started(tmp_path: Path) -> None:
    soak = subprocess.Popen(
        [sys.executable, "-m", "proof.soak", "--minutes", "1", "--folder", str(tmp_path)],
        cwd=REPOSITORY,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    started: set[psutil.Process] = set()

    def has_workers() -> bool:
        started.update(psutil.Process(soak.pid).children(recursive=True))
        # Two servers, three workers with a pool each, and who forks them.
        return len(started) >= 10

    def are_gone() -> bool:
        return not any(one.is_running() for one in started)

    try:
        wait_for(has_workers, 60, "servers and workers")
        os.kill(soak.pid, signal.SIGTERM)
        # It is cleaning up by now: the first of them is ended.
        wait_for(lambda: not all(one.is_running() for one in started), 60, "the first end")
        os.kill(soak.pid, signal.SIGTERM)
        os.kill(soak.pid, signal.SIGINT)
        assert soak.wait(60)
        wait_for(are_gone, 10, "none is left")
    finally:
        end(soak, started)


#: Starts a process in a session of its own, which starts another; nobody notes them.
STARTS = """
import subprocess, sys
from proof.stopping import end_at_signals, ending_all
SLEEPS = "import time; time.sleep(600)"
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SLEEPS!r}])"
end_at_signals()
with ending_all():
    subprocess.Popen([sys.executable, "-c", PARENT], start_new_session=True)
    sys.stdin.read()
"""


def test_what_was_started_a_moment_before_the_signal_is_ended_though_nobody_noted_it() -> None:
    proof = subprocess.Popen([sys.executable, "-c", STARTS], cwd=REPOSITORY, stdin=subprocess.PIPE)
    started: set[psutil.Process] = set()

    def has_both() -> bool:
        started.update(psutil.Process(proof.pid).children(recursive=True))
        return len(started) == 2

    try:
        wait_for(has_both, 30, "a process that has started another")
        os.kill(proof.pid, signal.SIGINT)
        assert proof.wait(30)
        wait_for(lambda: not any(map(_runs, started)), 10, "none is left")
    finally:
        end(proof, started)


def _runs(process: psutil.Process) -> bool:
    try:
        # Who is killed as an orphan stays a zombie where nobody reaps.
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False

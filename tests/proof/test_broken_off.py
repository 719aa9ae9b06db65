"""A proof that is broken off leaves no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from tests.support.processes import REPOSITORY
from tests.support.waiting import wait_for


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
        soak.kill()
        soak.wait()
        for one in started:
            if one.is_running():
                one.kill()

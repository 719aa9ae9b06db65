"""The page `docs/migrating/relier.rst` with Relier itself, where it is installed (`tox -e relier`):
its own workers end, and what is in its queues is done here.
"""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import Page
from tests.docs.migrating.project import Tree
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

pytest.importorskip("relier", reason="its fifty distributions are in `tox -e relier` only")

PAGE = Page("migrating/relier.rst")
QUEUES = "high_priority,default,low_priority,re-queue"
PUSH = "from documents.scans import read_scan\nfor number in {}: read_scan.push(number)"


def test_what_waits_in_its_queues_is_done_once(tmp_path: Path, redis_server: RedisServer) -> None:
    before = Tree("before", tmp_path, redis_server, [PAGE])
    after = Tree("after", tmp_path, redis_server, [PAGE])
    broker = redis_server.client()

    def noted(what: object) -> list[str]:
        return after.told(f"scan-{what}")

    def dead_letters() -> list[str]:
        return [key.decode() for key in broker.hkeys("rl:dlq")]

    try:
        before.run(PUSH.format([0]))
        old = before.worker(
            "old",
            concurrency=1,
            options=("-Q", QUEUES, "--include", "documents.scans"),
            app="relier.tasks.app",
            is_ready=lambda: noted(0) == ["before began", "before ended"],
        )
        # What Relier gave up is released while its workers run.
        before.run(PUSH.format(["no such/folder"]))
        wait_for(dead_letters, 30, "its dead letter")
        (tmp_path / "scan-no such").mkdir()
        (letter,) = dead_letters()
        subprocess.run(
            [str(Path(sys.executable).with_name("rl")), "dlq", "release", letter],
            env=before.environ,
            check=True,
            capture_output=True,
        )
        wait_for(lambda: len(noted("no such/folder")) == 2, 30, "it is done again")

        # The day itself: one runs, others wait, and the old worker is stopped warmly.
        after.hold("scan-1")
        before.run(PUSH.format([1]))
        wait_for(lambda: noted(1) == ["before began"], 30, "one runs")
        old.signal_main(signal.SIGTERM)
        before.run(PUSH.format([2, 3, 4]))
        command = shlex.split(PAGE.commands()[0])
        after.worker("new", concurrency=2, options=command[4:])
        for number in (2, 3, 4):
            wait_for(
                lambda number=number: noted(number) == ["after began", "after ended"],
                30,
                f"what waited, {number}",
            )
        after.let_go("scan-1")
        assert old.wait_until_ended() == 0
        after.run("from documents.scans import read_scan\nread_scan.delay(5)")
        wait_for(lambda: noted(5) == ["after began", "after ended"], 30, "a call of the new code")

        assert noted(1) == ["before began", "before ended"]
        assert [len(noted(number)) for number in range(6)] == [2] * 6
        wait_for(lambda: not broker.exists("unacked"), 30, "nothing is left of the deliveries")
        assert not any(broker.llen(name) for name in ("celery", *QUEUES.split(",")))
    finally:
        before.close()
        after.close()

"""What a probe makes of the files that it finds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import celery_reliable_probe as probe
from celery_reliable.exceptions import ConfigurationError
from celery_reliable.worker import health
from celery_reliable.worker.health import Signs, Unserved
from tests.support.processes import REPOSITORY
from tests.support.waiting import wait_for


class Host:
    """A worker that lives and is ready, unless it says something else."""

    not_alive = not_ready = ""

    def why_not_alive(self) -> str:
        return self.not_alive

    def why_not_ready(self) -> str:
        return self.not_ready


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "probes"


@pytest.fixture
def signs(folder: Path, host: Host) -> Iterator[Signs]:
    """A worker of this process."""
    found = Signs(str(folder), nodename="one@here", pid=os.getpid(), lease_seconds=10, told=host)
    found.start()
    yield found
    found.stop()


def put(folder: Path, name: str, **changes: Any) -> None:
    """Write a file as of a worker that lives, but for *changes*."""
    folder.mkdir(exist_ok=True)
    sign = {
        "nodename": name,
        "identity": probe.identity_of(os.getpid()),
        "fresh_seconds": 10,
        "not_alive": "",
        "not_ready": "",
        "written": time.monotonic(),
    }
    (folder / probe.name_of(name, 1)).write_text(json.dumps(sign | changes))


def test_who_lives_and_is_ready(folder: Path, signs: Signs, host: Host) -> None:
    def ask(kind: str) -> list[str]:
        return probe.problems(kind, str(folder))

    assert (ask("livez"), ask("readyz")) == ([], [])
    host.not_ready = "ends"
    wait_for(lambda: ask("readyz"), 5, "it is told")
    assert ask("readyz") == [f"one@here (pid {os.getpid()}) ends"]
    assert ask("livez") == []
    host.not_ready, host.not_alive = "", "stands"
    wait_for(lambda: ask("livez"), 5, "it is told")
    # Who does not live is not ready either.
    assert ask("readyz") == [f"one@here (pid {os.getpid()}) stands"]
    signs.stop()
    assert "no process of a worker" in ask("livez")[0]
    assert list(folder.iterdir()) == []


def test_who_has_said_nothing_for_long(folder: Path) -> None:
    put(folder, "one@here", written=time.monotonic() - 7)

    assert probe.problems("livez", str(folder)) == []
    (reason,) = probe.problems("livez", str(folder), max_age_seconds=5)
    assert "has said nothing for 7." in reason


@pytest.mark.parametrize(
    "changes",
    [
        # Its number is another process's now.
        {"born": "1"},
        # Another container, another boot.
        {"pids": "pid:[1]"},
        {"boot": "another"},
        {"pid": 2**22 + 1, "born": ""},
    ],
)
def test_who_has_ended_is_not_asked(folder: Path, changes: dict[str, Any]) -> None:
    gone = probe.identity_of(os.getpid()) | changes
    put(folder, "gone@here", identity=gone)
    assert "no process of a worker" in probe.problems("livez", str(folder))[0]

    put(folder, "one@here")

    assert probe.problems("livez", str(folder)) == []
    assert probe.problems("livez", str(folder), ["one@here"]) == []
    (reason,) = probe.problems("livez", str(folder), ["one@here", "gone@here"])
    assert "gone@here" in reason


def test_a_worker_removes_what_dead_ones_left(folder: Path, host: Host) -> None:
    put(folder, "gone@here", identity=probe.identity_of(os.getpid()) | {"born": "1"})
    put(folder, "elsewhere@here", identity=probe.identity_of(os.getpid()) | {"pids": "pid:[1]"})
    put(folder, "long@gone", identity=probe.identity_of(os.getpid()) | {"pids": "pid:[1]"})
    os.utime(folder / probe.name_of("long@gone", 1), (1, 1))
    put(folder, "other@here")

    signs = Signs(str(folder), nodename="one@here", pid=os.getpid(), lease_seconds=10, told=host)

    names = {path.name.partition("@")[0] for path in folder.iterdir()}
    assert names == {"elsewhere", "other", "one"}
    signs.stop()


def test_a_folder_that_cannot_be_written(tmp_path: Path, host: Host) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="PROBE_DIRECTORY"):
        Signs(str(tmp_path / "file"), nodename="one", pid=1, lease_seconds=10, told=host)


def test_at_a_terminal(tmp_path: Path) -> None:
    """It imports nothing but the standard library."""

    def run(*arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            # Without the packages that are installed.
            [sys.executable, "-S", "-m", "celery_reliable_probe", *arguments],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stderr

    put(tmp_path / "well", "one@here")
    assert run("livez", str(tmp_path / "well")) == (0, "")
    code, said = run("readyz", str(tmp_path / "well"), "--worker", "two@here")
    assert (code, "two@here" in said) == (1, True)
    code, said = run("livez", str(tmp_path / "none"))
    assert (code, "PROBE_DIRECTORY" in said) == (1, True)
    assert run("live", str(tmp_path))[0] == 2


class Queues:
    """A broker with one queue on a Redis."""

    is_redis = True

    def __init__(self) -> None:
        self.depth = 1

    def steps(self, queue: str, looked_at: int) -> list[Any]:
        return [SimpleNamespace(depth=self.depth)]


def test_who_is_free_and_begins_nothing_while_work_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(health.time, "monotonic", lambda: now)
    seen, broker = SimpleNamespace(begun=0, is_free=True, queues=["celery"]), Queues()
    held_back: set[str] = set()
    found: Any = Unserved(seen, 20, held_back.__contains__)  # type: ignore[arg-type]

    def after(seconds: float) -> float:
        nonlocal now
        for _ in range(int(seconds)):
            now += 1
            found.look(broker)
        return float(found.seconds)

    assert after(15) == 0
    assert after(15) > 20
    # It begins one.
    seen.begun = 1
    assert found.seconds == 0
    assert after(15) == 0
    broker.depth = 0
    assert after(60) == 0
    broker.depth = 1
    assert after(15) == 0
    # An operator has paused the queue.
    held_back.add("celery")
    assert after(60) == 0
    held_back.clear()
    # It is busy.
    seen.is_free = False
    assert after(60) == 0
    seen.is_free = True
    assert after(15) == 0
    assert after(15) > 20

"""What a probe makes of the files that it finds."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

import celery_reliable_probe as probe
from tests.support.processes import run_python


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "probes"


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


def test_at_a_terminal(tmp_path: Path) -> None:
    """It imports nothing but the standard library."""

    def run(*arguments: str) -> tuple[int, str]:
        # Without the packages that are installed.
        done = run_python("-S", "-m", "celery_reliable_probe", *arguments, code=None)
        return done.returncode, done.stderr

    put(tmp_path / "well", "one@here")
    assert run("livez", str(tmp_path / "well")) == (0, "")
    code, said = run("readyz", str(tmp_path / "well"), "--worker", "two@here")
    assert (code, "two@here" in said) == (1, True)
    code, said = run("livez", str(tmp_path / "none"))
    assert (code, "PROBE_DIRECTORY" in said) == (1, True)
    assert run("live", str(tmp_path))[0] == 2

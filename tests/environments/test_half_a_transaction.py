"""What a power cut leaves that fell into a transaction, and the command that takes it off."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from proof.soak.history import step_end
from tests.conftest import StartRedis
from tests.ledger.scene import Scene, open_ledger
from tests.support.redis_server import SERVERS, RedisServer, why_not

KEY = "{half:0}:task:"
#: Another release may do better.
SEEN_WITH = ("6.2.", "7.0.")


@pytest.fixture(params=["Redis 6.2", "Redis 7"])
def server(start_redis: StartRedis, request: pytest.FixtureRequest) -> RedisServer:
    """One that is down, and whose file ends within the step that recorded the task *half*."""
    name = request.param
    if reason := why_not(name):
        pytest.skip(reason)
    found = start_redis(binary=SERVERS[name])
    version = found.client().info("server")["redis_version"]
    if not version.startswith(SEEN_WITH):
        pytest.skip(f"it was seen with Redis 6.2 and 7.0, and this is {version}")
    ledger = open_ledger(found.url(), namespace="half")
    scene = Scene(ledger, found.client())
    scene.publish("whole")
    scene.publish("half")
    ledger.close()
    found.stop()
    file = file_of(found)
    text = file.read_bytes()
    at = text.rindex(b"{half:0}:due")
    assert step_end(text, at) > at
    file.write_bytes(text[:at])
    return found


def file_of(server: RedisServer) -> Path:
    here = server.directory
    files = [here / "appendonly.aof", *here.glob("appendonlydir/*.incr.aof")]
    return next(path for path in files if path.is_file())


def start_twice(server: RedisServer) -> set[str]:
    """What is there after two starts, of a file to which something was added after the first."""
    server.start()
    server.wait_until_loaded()
    client = server.client()
    assert sorted(client.keys(KEY + "*")) == [f"{KEY}whole".encode()]
    client.set("later", 1)
    server.stop()
    server.start()
    server.wait_until_loaded()
    return {key.decode() for key in server.client().keys("later")}


def test_what_is_written_next_is_lost_by_the_start_after(server: RedisServer) -> None:
    assert start_twice(server) == set()


def test_but_not_if_the_file_was_mended(server: RedisServer) -> None:
    program = shutil.which("redis-check-aof")
    if program is None:
        pytest.skip("no redis-check-aof is installed")
    subprocess.run([program, "--fix", file_of(server)], input=b"y\n", check=True, timeout=60)

    assert start_twice(server) == {"later"}

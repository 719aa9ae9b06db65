"""A command goes to the server as redis-py would send it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
import redis
from redis.connection import PythonRespSerializer

from celery_reliable.compat.redis import ask


class Sent(redis.Connection):
    """A connection that keeps what it is given to send, and has an answer for each command."""

    def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        self.sent = b"".join(command)

    def read_response(self, *args: Any, **kwargs: Any) -> Any:
        return b"OK"


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
@pytest.mark.parametrize(
    "command",
    [
        ("SET", "key", "väl\r\nue"),
        ("SET", b"\x00\xff", ""),
        ("EVALSHA", "a" * 40, 2, "k1", "k2", 0, -17, 2**40, 1.5, b"m" * 3000),
    ],
)
def test_arguments_of_every_kind(command: tuple[Any, ...], encoding: str) -> None:
    connection = Sent(encoding=encoding)

    assert ask(connection, [command, ("PING",)]) == [b"OK", b"OK"]

    # Whatever is installed beside redis-py: hiredis packs all text as UTF-8.
    packer = PythonRespSerializer(6000, connection.encoder.encode)
    by_redis_py = [*packer.pack(*command), *packer.pack("PING")]
    assert connection.sent == b"".join(by_redis_py)


@pytest.mark.parametrize("value", [True, None, UUID(int=1)])
def test_what_redis_py_refuses_is_refused(value: Any) -> None:
    with pytest.raises(redis.DataError):
        ask(Sent(), [("SET", "key", value)])

"""Every command of an actor to the server: where actors take turns, and what can get lost."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import redis
from redis.connection import AbstractConnection

from tests.ledger.driver.schedule import Schedule

_TIME = b"*1\r\n$4\r\nTIME\r\n"
_SHOWN = re.compile(rb"\$\d+\r\n([^\r]{1,60})")
_WRITES = re.compile(rb"\r\n(?:EVAL|EVALSHA|HDEL|SADD|LPUSH|RPUSH)\r\n")
_END = b"driver-end"


@dataclass
class Late:
    """A command that was given up on and is still on its way."""

    data: bytes
    db: int
    what: str
    #: How often it arrives yet.
    times: int


class Wire:
    """Stands in every connection of the process while a world runs."""

    def __init__(self, schedule: Schedule, port: int, trace: Any) -> None:
        self.schedule = schedule
        self.port = port
        self._trace = trace
        #: Chances, per command.
        self.lost_replies = 0.0
        self.lost_commands = 0.0
        self.delays = 0.0
        #: Nobody reaches the server.
        self.is_away = False
        #: How the server's clock is read in the place of TIME.
        self.time_command = _TIME
        self.late: list[Late] = []
        self.n_commands = 0

    def send(self, connection: Any, send: Any, command: Any, check_health: bool) -> None:
        """Send for an actor, or not."""
        schedule = self.schedule
        actor = schedule.current
        if actor is None or getattr(connection, "is_drivers", False):
            send(connection, command, check_health)
            return
        schedule.stop_here()
        self.n_commands += 1
        data = command.encode() if isinstance(command, str) else b"".join(command)
        if data == _TIME:
            data = self.time_command
        what = self._trace(actor.name, data)
        if self.is_away:
            connection.disconnect()
            raise redis.ConnectionError("driver: the server is away")
        fate = schedule.choice.random()
        if fate < self.lost_commands + self.delays:
            connection.disconnect()
            if fate >= self.lost_commands and _WRITES.search(data):
                times = 2 if schedule.choice.random() < 0.2 else 1
                self.late.append(Late(data, int(connection.db or 0), what, times))
            raise redis.ConnectionError("driver: the command is lost")
        send(connection, [data], False)
        if fate < self.lost_commands + self.delays + self.lost_replies:
            try:
                connection.read_response()
            except redis.ResponseError:
                pass
            connection.disconnect()
            raise redis.ConnectionError("driver: the reply is lost")

    def deliver_late(self, late: Late) -> None:
        """Let a command arrive that nobody waits for any more."""
        late.times -= 1
        if late.times <= 0:
            self.late.remove(late)
        with socket.create_connection(("127.0.0.1", self.port), 5) as sock:
            select = b"*2\r\n$6\r\nSELECT\r\n$1\r\n%d\r\n" % late.db
            echo = b"*2\r\n$4\r\nECHO\r\n$%d\r\n%s\r\n" % (len(_END), _END)
            sock.sendall(select + late.data + echo)
            got = b""
            while _END not in got:
                more = sock.recv(65536)
                if not more:
                    break
                got += more

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Stand in the connections."""
        send, connect = AbstractConnection.send_packed_command, AbstractConnection.connect

        def sent(connection: Any, command: Any, check_health: bool = True) -> None:
            self.send(connection, send, command, check_health)

        def connected(connection: Any, *args: Any, **kwargs: Any) -> None:
            # It is no step of an actor's.
            if self.is_away and self.schedule.current is not None:
                raise redis.ConnectionError("driver: the server is away")
            connection.is_drivers, connection.driver_info = True, None
            try:
                connect(connection, *args, **kwargs)
            finally:
                connection.is_drivers = False

        AbstractConnection.send_packed_command = sent  # type: ignore[method-assign]
        AbstractConnection.connect = connected  # type: ignore[method-assign]
        try:
            yield
        finally:
            AbstractConnection.send_packed_command = send  # type: ignore[method-assign]
            AbstractConnection.connect = connect  # type: ignore[method-assign]


def shown(data: bytes, names_by_sha: dict[bytes, str]) -> str:
    """Return a command as a line of a trace."""
    words = [word.decode("utf-8", "replace") for word in _SHOWN.findall(data)]
    for index, word in enumerate(words):
        words[index] = names_by_sha.get(word.encode(), word)
    return " ".join(words)[:300]

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

from tests.ledger.driver.clock import STRETCH
from tests.ledger.driver.schedule import Process, Schedule

_SHOWN = re.compile(rb"\$\d+\r\n([^\r]{1,60})")
#: What changes nothing.
_READS = re.compile(
    rb"\*\d+\r\n\$\d+\r\n(?:CLIENT|GET|HGET|HGETALL|HKEYS|HMGET|HSCAN|LLEN|LRANGE|MGET|PING|SMEMBERS"
    rb"|ZCARD|ZRANGE|ZRANGEBYSCORE|ZSCORE)\r\n"
)
#: As in the scripts.
_EXPIRY = re.compile(rb"(?<=\r\n\$2\r\nPX\r\n)\$\d+\r\n(\d+)\r\n")
_LISTS = b"*4\r\n$6\r\nCLIENT\r\n$4\r\nLIST\r\n"
_WRITES = re.compile(rb"\r\n(?:EVAL|EVALSHA|HDEL|LMOVE|SADD|LPUSH|RPUSH)\r\n")
#: A wait for a message.  Here it is over at once: nobody can know when somebody publishes next.
_WAIT = re.compile(rb"\*6\r\n\$6\r\nBLMOVE\r\n((?:\$\d+\r\n[^\r]*\r\n){4})\$\d+\r\n[\d.]+\r\n")
_AT_ONCE = rb"*5\r\n$5\r\nLMOVE\r\n\1"
#: What lets the server know another script.
_TEACHES = b"\r\nEVAL\r\n"
_END = b"driver-end"
_HOST = b"127.0.0.1"
#: The name of the driver's own connections.
OWN = "driver"
_TIMEOUT_SECONDS = 2.0
#: TCP gives up what it cannot deliver (Linux: after 15 attempts).
_LONGEST_ON_ITS_WAY_MS = 925_000
_REMEMBERED_MS = 3_600_000


@dataclass
class Late:
    """A command that was given up on and is still on its way."""

    data: bytes
    db: int
    what: str
    #: How often it arrives yet.
    times: int
    sent_ms: float
    #: Of a publication: how much time had gone by on the server.
    forward_ms: float | None


class Wire:
    """Stands in every connection of the process while a world runs."""

    def __init__(self, schedule: Schedule, stage: Any, trace: Any) -> None:
        self.schedule = schedule
        self._stage = stage
        #: Whose clock it is; the world sets it.
        self.server: Any = None
        self._trace = trace
        #: Chances, per command.
        self.lost_replies = 0.0
        self.lost_commands = 0.0
        self.delays = 0.0
        #: Nobody reaches the server.
        self.is_away = False
        #: Main processes whose answers, and those of their children, are lost.
        self.cut_off: set[Process] = set()
        #: What is sent in the place of a command that would tell of the real server.
        self.in_its_place: dict[bytes, bytes] = {}
        self.late: list[Late] = []
        self.n_commands = 0
        #: Something was sent that may change what the server holds.
        self.has_written = False
        #: The addresses of connections that were closed here.
        self._closed: set[bytes] = set()

    def send(self, connection: Any, send: Any, command: Any, check_health: bool) -> None:
        """Send for an actor, or not."""
        schedule = self.schedule
        actor = schedule.current
        if actor is None or _is_own(connection) or getattr(connection, "is_drivers", False):
            send(connection, command, check_health)
            return
        actor.asks = command
        schedule.stop_here()
        actor.asks = None
        self.n_commands += 1
        data = command.encode() if isinstance(command, str) else b"".join(command)
        data = self._replaced(_WAIT.sub(_AT_ONCE, _EXPIRY.sub(_stretched, data)))
        what = self._trace(actor.name, data)
        if data.startswith(_LISTS):
            self._settle()
        elif not _READS.match(data):
            self.has_written = True
            self._note_teaching(data)
        if self.is_away:
            connection.disconnect()
            raise redis.ConnectionError("driver: the server is away")
        if (actor.process.parent or actor.process) in self.cut_off:
            # The connection stays as it is: whoever gives it up closes it.
            schedule.sleep(_TIMEOUT_SECONDS)
            raise redis.TimeoutError("driver: no answer")
        fate = schedule.choice.random()
        if fate < self.lost_commands + self.delays:
            connection.disconnect()
            if fate >= self.lost_commands and _WRITES.search(data):
                times = 2 if schedule.choice.random() < 0.2 else 1
                is_record = self._stage.sha_of_record in data[:200]
                forward_ms = self.server.forward_ms if is_record else None
                db = int(connection.db or 0)
                self.late.append(Late(data, db, what, times, schedule.now_ms, forward_ms))
            raise redis.ConnectionError("driver: the command is lost")
        send(connection, [data], False)
        if fate < self.lost_commands + self.delays + self.lost_replies:
            try:
                connection.read_response()
            except redis.ResponseError:
                pass
            connection.disconnect()
            raise redis.ConnectionError("driver: the reply is lost")

    def _note_teaching(self, data: bytes) -> None:
        if _TEACHES in data:
            self._stage.is_taught = True

    def _replaced(self, data: bytes) -> bytes:
        for asked, instead in self.in_its_place.items():
            data = data.replace(asked, instead)
        return data

    def _settle(self) -> None:
        """Let the server see the end of what was closed here: that takes a while, which differs."""
        while self._closed:
            listed = self._stage.ask("CLIENT", "LIST")
            self._closed = {address for address in self._closed if address in listed}

    def give_up_late(self) -> None:
        """Let nothing arrive any more that has been on its way for too long."""
        now_ms, forward_ms = self.schedule.now_ms, self.server.forward_ms
        self.late = [
            late
            for late in self.late
            if now_ms - late.sent_ms < _LONGEST_ON_ITS_WAY_MS
            # Who published is known for an hour, by the server's clock, which may step.
            and (late.forward_ms is None or forward_ms - late.forward_ms < _REMEMBERED_MS)
        ]

    def deliver_late(self, late: Late) -> None:
        """Let a command arrive that nobody waits for any more."""
        self.has_written = True
        self._note_teaching(late.data)
        self._trace("late", late.data)
        late.times -= 1
        if late.times <= 0:
            self.late.remove(late)
        with socket.create_connection(("127.0.0.1", self._stage.port), 5) as sock:
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
        disconnect = AbstractConnection.disconnect

        def sent(connection: Any, command: Any, check_health: bool = True) -> None:
            self.send(connection, send, command, check_health)

        def connected(connection: Any, *args: Any, **kwargs: Any) -> None:
            # It is no step of an actor's.
            if self.is_away and self.schedule.current is not None and not _is_own(connection):
                raise redis.ConnectionError("driver: the server is away")
            connection.is_drivers, connection.driver_info = True, None
            try:
                connect(connection, *args, **kwargs)
            finally:
                connection.is_drivers = False

        def disconnected(connection: Any, *args: Any) -> None:
            if connection._sock is not None:
                # As CLIENT LIST writes it.
                self._closed.add(b"addr=%s:%d " % (_HOST, connection._sock.getsockname()[1]))
            disconnect(connection, *args)

        AbstractConnection.send_packed_command = sent  # type: ignore[method-assign]
        AbstractConnection.connect = connected  # type: ignore[method-assign]
        AbstractConnection.disconnect = disconnected  # type: ignore[method-assign]
        try:
            yield
        finally:
            AbstractConnection.send_packed_command = send  # type: ignore[method-assign]
            AbstractConnection.connect = connect  # type: ignore[method-assign]
            AbstractConnection.disconnect = disconnect  # type: ignore[method-assign]


def _is_own(connection: Any) -> bool:
    """Whether it is one of the driver's own: what it asks while an actor moves is no step of the
    actor.
    """
    return bool(connection.client_name == OWN)


def _stretched(found: re.Match[bytes]) -> bytes:
    ms = b"%d" % (int(found[1]) * STRETCH)
    return b"$%d\r\n%s\r\n" % (len(ms), ms)


def words_of(data: bytes) -> list[bytes]:
    """Return the words of a command."""
    words, at = [], data.index(b"\n") + 1
    while data[at : at + 1] == b"$":
        end = data.index(b"\r", at)
        size = int(data[at + 1 : end])
        words.append(data[end + 2 : end + 2 + size])
        at = end + 4 + size
    return words


def shown(data: bytes, names_by_sha: dict[bytes, str]) -> str:
    """Return a command as a line of a trace."""
    words = [word.decode("utf-8", "replace") for word in _SHOWN.findall(data)]
    for index, word in enumerate(words):
        words[index] = names_by_sha.get(word.encode(), word)
    return " ".join(words)[:300]

"""A proxy before a real Redis that knows whose command it is, and cuts one of them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import signal
import socket
import struct
import threading
from asyncio import StreamReader, StreamWriter
from collections import Counter, deque
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from proof.cuts.choosing import is_wait
from proof.cuts.owners import owner_of
from proof.cuts.points import Point
from tests.support.redis_server import free_port
from tests.support.resp import SUBSCRIBING_COMMANDS, Command, read_command, read_reply

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["CuttingProxy", "ScriptNames"]

T = TypeVar("T")

_LOOP_SECONDS = 10.0
_HEADER = re.compile(rb"--\[\[\n(\w+):")
#: With this a closed socket tells the other side that it was reset.
_RESET = struct.pack("ii", 1, 0)
_NONE = (b"*-1\r\n", b"_\r\n", b"$-1\r\n")
#: What a script says that has found nothing to take.
_EMPTY = b"*1\r\n$5\r\nempty"
#: Who sends this is the sweeper's thread, on a connection of its own.
_SWEEPERS = "begin_pass"


class ScriptNames:
    """Names of scripts by their digest, as their own headers say; for all proxies of a run."""

    def __init__(self) -> None:
        self.texts: dict[str, bytes] = {}
        self._names: dict[str, str] = {}

    def learn(self, command: Command) -> None:
        """Note what a script is called when its text is sent."""
        is_load = command.name == "SCRIPT" and command.arguments[1].upper() == b"LOAD"
        if command.name != "EVAL" and not is_load:
            return
        text = command.arguments[2 if is_load else 1]
        digest = hashlib.sha1(text).hexdigest()
        if digest not in self.texts:
            found = [name.decode() for name in _HEADER.findall(text)]
            self._names[digest] = "+".join(found) or f"script {digest[:8]}"
            self.texts[digest] = text

    def of(self, command: Command) -> str:
        """What a command is called in a point."""
        digest = command.script
        if digest is None:
            return command.name
        return self._names.get(digest, f"script {digest[:8]}")


@dataclass(eq=False)
class _Link:
    """One client connection and its twin to the server."""

    client: StreamWriter
    server: StreamWriter
    port: int
    owner: int | None = None
    is_sweepers: bool = False
    is_subscribed: bool = False
    #: Cut when the next reply of all has come; on a connection that subscribed they do not pair.
    is_cut_next: bool = False
    #: For each command under way: its name, whether it is cut when its reply has come, and as what
    #: it was counted.
    awaited: deque[list[Any]] = field(default_factory=deque)


class CuttingProxy:
    """Passes all on; from `arm` on it counts the commands of each role, and cuts at one point.

    What did nothing does not count: a script that the server did not know, which comes again with
    its text, and a wait that ended without a message.
    """

    def __init__(self, server_port: int, names: ScriptNames) -> None:
        self.server_port = server_port
        self.port = free_port()
        self.names = names
        self.counts: Counter[tuple[str, str]] = Counter()
        #: What was under way when it was armed.
        self.under_way: set[tuple[str, str]] = set()
        self.killed: int | None = None
        self.has_cut = threading.Event()
        self._point: Point | None = None
        self._effect = ""
        self._is_armed = False
        #: Leaders of sessions that are told apart, and the role of each.
        self._leaders: dict[int, str] = {}
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._listener: asyncio.Server | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_LOOP_SECONDS)
        self._loop.close()

    def url(self, db: int = 0) -> str:
        """Where a client finds a database of the server, by way of this proxy."""
        return f"redis://127.0.0.1:{self.port}/{db}"

    def tell_apart(self, leader: int, role: str) -> None:
        """Count what this process sends as this role's, and its children's as a child's."""
        self._leaders[leader] = role

    def arm(self, point: Point | None) -> None:
        """Count from now on, and cut at that point, if one is given."""
        self._run(self._arm(point))

    def disarm(self) -> None:
        """Count and cut no more, and know nobody."""
        self._run(self._disarm())

    async def _arm(self, point: Point | None) -> None:
        self._point = point
        self._is_armed = True
        for link in self._links:
            self._find_owner(link)
            for waiting in link.awaited:
                self._meets(link, waiting, is_sent=True)

    async def _disarm(self) -> None:
        self._is_armed = False
        self._point = None
        self._leaders.clear()
        self.counts, self.under_way = Counter(), set()
        self.killed = None
        self.has_cut.clear()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_LOOP_SECONDS)

    async def _open(self) -> None:
        self._listener = await asyncio.start_server(self._welcome, "127.0.0.1", self.port)

    async def _close(self) -> None:
        assert self._listener is not None
        self._listener.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _welcome(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.CancelledError):
            # Either way the client sees a closed connection.
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        answers, server = await asyncio.open_connection("127.0.0.1", self.server_port)
        link = _Link(writer, server, writer.get_extra_info("peername")[1])
        # At once: whoever is forked later has this connection, too.
        self._find_owner(link)
        self._links.add(link)
        pumps = [
            asyncio.ensure_future(self._pump_commands(reader, link)),
            asyncio.ensure_future(self._pump_replies(answers, link)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._links.discard(link)
            link.client.close()
            link.server.close()
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump_commands(self, reader: StreamReader, link: _Link) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                command = await read_command(reader)
                self.names.learn(command)
                name = self.names.of(command)
                link.is_sweepers = link.is_sweepers or name == _SWEEPERS
                waiting: list[Any] = [name, False, None]
                if self._meets(link, waiting):
                    self._cut(link)
                    return
                link.is_subscribed = link.is_subscribed or command.name in SUBSCRIBING_COMMANDS
                link.is_cut_next = link.is_subscribed and waiting[1]
                link.awaited.append(waiting)
                link.server.write(command.raw)
                await link.server.drain()

    async def _pump_replies(self, reader: StreamReader, link: _Link) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                reply = await read_reply(reader)
                is_cut = link.is_cut_next
                if not link.is_subscribed and link.awaited:
                    waiting = link.awaited.popleft()
                    is_cut = waiting[1]
                    if _is_nothing(waiting[0], reply):
                        self._uncount(waiting[2])
                        is_cut = False
                if is_cut:
                    self._cut(link)
                    return
                link.client.write(reply)
                await link.client.drain()

    def _meets(self, link: _Link, waiting: list[Any], *, is_sent: bool = False) -> bool:
        """Count a command; say whether it is cut before, and note if it is to be cut after."""
        role = self._role_of(link) if self._is_armed else None
        if role is None:
            return False
        key = (role, waiting[0])
        self.counts[key] += 1
        if is_sent:
            self.under_way.add(key)
        waiting[2] = key
        point = self._point
        if point is None or self.has_cut.is_set():
            return False
        if (point.role, point.command, point.number) != (*key, self.counts[key]):
            return False
        self._effect = point.effect
        waiting[1] = point.time == "after"
        return point.time == "before" and not is_sent

    def _uncount(self, key: tuple[str, str] | None) -> None:
        if key is not None:
            self.counts[key] -= 1

    def _find_owner(self, link: _Link) -> None:
        if link.owner is None:
            link.owner = owner_of(link.port, self.port, list(self._leaders))

    def _role_of(self, link: _Link) -> str | None:
        if link.owner is None:
            return None
        role = self._leaders.get(link.owner)
        if role is None:
            return "child"
        return "sweeper" if link.is_sweepers and role == "main" else role

    def _cut(self, link: _Link) -> None:
        if self._effect == "kill" and link.owner is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(link.owner, signal.SIGKILL)
            self.killed = link.owner
        sock = link.client.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        link.client.transport.abort()
        link.server.close()
        self.has_cut.set()


def _is_nothing(name: str, reply: bytes) -> bool:
    found_none = reply in _NONE or reply.startswith(_EMPTY)
    return reply.startswith(b"-NOSCRIPT") or (is_wait(name) and found_none)

"""A proxy before a Redis server that loses chosen requests and replies, or the whole network."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from asyncio import StreamReader, StreamWriter
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from tests.support.redis_server import free_port
from tests.support.resp import SUBSCRIBING_COMMANDS, Command, read_command, read_reply
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")

LOOK_SECONDS = 0.05
LOOP_SECONDS = 10.0


class Action(Enum):
    """What a rule does with a command that is its turn."""

    WATCH = "watched"
    DROP_REQUEST = "request dropped"
    DROP_REPLY = "reply dropped"
    STALL = "stalled"
    HANG = "hung"


@dataclass(eq=False)
class Rule:
    """Which commands it is about, from the how-manieth on, and how often it acts.

    `matched` counts the commands that fitted, `acted` those it acted on. Both grow in the proxy's
    thread; `wait` is the way to wait for them.
    """

    action: Action
    fits: Callable[[Command], bool]
    nth: int
    times: int | None
    what: str
    matched: int = 0
    acted: int = 0

    def wait(self, acted: int = 1, timeout_seconds: float = 10.0) -> None:
        """Wait until it acted so many times."""
        wait_for(lambda: self.acted >= acted, timeout_seconds, f"the proxy's rule: {self.what}")

    def take(self, command: Command) -> Match | None:
        """Count a command if it fits, and say whether the rule acts on it."""
        if not self.fits(command):
            return None
        self.matched += 1
        acts = self.matched >= self.nth and (self.times is None or self.acted < self.times)
        self.acted += acts
        return Match(self, acts)


@dataclass(frozen=True)
class Match:
    """A command that fitted a rule, and whether the rule acted on it."""

    rule: Rule
    acts: bool

    def does(self, action: Action) -> bool:
        return self.acts and self.rule.action is action

    def give_back(self) -> None:
        """Uncount a command that the server did not execute after all."""
        self.rule.matched -= 1
        self.rule.acted -= self.acts


@dataclass(eq=False)
class _Link:
    """One client connection and its twin to the server."""

    client: StreamWriter
    server: StreamWriter
    # The rules that each command under way fitted, in the order sent.
    awaited: deque[Sequence[Match]] = field(default_factory=deque)
    in_transaction: bool = False
    # What commands inside MULTI fitted: it is the reply to EXEC that is lost.
    held_for_exec: list[Match] = field(default_factory=list)
    is_subscribed: bool = False

    def close(self) -> None:
        self.client.close()
        self.server.close()


class RedisProxy:
    """Listens on a loopback port and passes everything on to the Redis at `server_port`.

    Commands inside MULTI count like any other, and are lost as what they are: with
    `drop_request` the transaction never executes, with `drop_reply` it executes and the reply to
    its EXEC is lost. A call that the server answered with NOSCRIPT executed nothing and does not
    count. Replies on a connection that subscribed are passed through and not paired with commands.
    """

    def __init__(self, server_port: int) -> None:
        self.server_port = server_port
        self.port = free_port()
        self._rules: list[Rule] = []
        self._lock = threading.Lock()
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._refuses = False
        self._delay_seconds = 0.0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._listener: asyncio.Server | None = None
        #: What passes: anything, requests, replies.
        self._flows, self._requests, self._answers = (asyncio.Event() for _ in range(3))

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(LOOP_SECONDS)
        self._loop.close()

    def url(self, db: int = 0) -> str:
        """Where a client finds database `db` of the server, by way of this proxy."""
        return f"redis://127.0.0.1:{self.port}/{db}"

    def drop_request(self, command: str | None = None, **how: Any) -> Rule:
        """Close the client's connection instead of passing the command on: nothing is executed.

        `command` is a command's name, `script` a script's SHA-1 (or function's name; for one of
        the ledger's transitions `celery_reliable.ledger.scripts.script("claim").sha`),
        `containing` a part of any argument, such as a task id; what is not given fits all.
        Acts on the `nth` command that fits and those after it, `times` in all (None: always).
        """
        return self._add(Action.DROP_REQUEST, command, **how)

    def drop_reply(self, command: str | None = None, **how: Any) -> Rule:
        """Pass the command on, await its reply, then close the connection without delivering it.

        The arguments are those of `drop_request`.
        """
        return self._add(Action.DROP_REPLY, command, **how)

    def stall_at(self, command: str | None = None, **how: Any) -> Rule:
        """Let nothing pass from this command on, in either direction, until `mend`: then the
        command is the first that passes.  The arguments are those of `drop_request`.
        """
        return self._add(Action.STALL, command, **how)

    def hang_at(self, command: str | None = None, **how: Any) -> Rule:
        """Let nothing pass any more on the connection of this command, which stays open.  Others
        are as before.  The arguments are those of `drop_request`.
        """
        return self._add(Action.HANG, command, **how)

    def watch(self, command: str | None = None, **how: Any) -> Rule:
        """Count the commands that fit and let them pass."""
        return self._add(Action.WATCH, command, times=None, **how)

    def remove(self, rule: Rule) -> None:
        """Let a rule act no more."""
        with self._lock:
            self._rules.remove(rule)

    def sever(self) -> None:
        """The network is gone: close every connection, and every new one, until `mend`."""
        self._refuses = True
        self.cut()

    def stall(self) -> None:
        """The network is silent: connections stay open and nothing passes, until `mend`."""
        self._do(self._flows.clear)

    def stall_replies(self) -> None:
        """The network is silent in one direction: requests pass, and replies wait until `mend`."""
        self._do(self._answers.clear)

    def stall_requests(self) -> None:
        """The network is silent in the other direction: replies pass, requests wait for `mend`."""
        self._do(self._requests.clear)

    def delay(self, seconds: float) -> None:
        """From now on each reply comes so much later, one after the other; 0: no more."""
        self._delay_seconds = seconds

    def mend(self) -> None:
        """End `sever` or `stall`; what was held back by a stall passes now."""
        self._refuses = False
        for gate in (self._flows, self._requests, self._answers):
            self._do(gate.set)

    def cut(self) -> None:
        """Close every connection once; new ones are welcome at once."""

        def close_all() -> None:
            for link in list(self._links):
                link.close()

        self._do(close_all)

    def _add(
        self,
        action: Action,
        command: str | None,
        *,
        script: str | None = None,
        containing: str | None = None,
        nth: int = 1,
        times: int | None = 1,
    ) -> Rule:
        def fits(candidate: Command) -> bool:
            return (
                (command is None or candidate.name == command.upper())
                and (script is None or candidate.script == script.lower())
                and (containing is None or candidate.contains(containing))
            )

        parts = [f"command {command}", f"script {script}", f"containing {containing}"]
        named = [part for part in parts if not part.endswith(" None")]
        what = f"{action.value}: {', '.join(named) or 'any command'} (from number {nth} on)"
        rule = Rule(action, fits, nth, times, what)
        with self._lock:
            self._rules.append(rule)
        return rule

    def _judge(self, command: Command) -> list[Match]:
        """The rules that a command fits, up to the first that acts on it; watchers always."""
        matches: list[Match] = []
        with self._lock:
            for rule in self._rules:
                is_settled = any(match.acts for match in matches)
                if is_settled and rule.action is not Action.WATCH:
                    continue
                if match := rule.take(command):
                    matches.append(match)
        return matches

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(LOOP_SECONDS)

    def _do(self, act: Callable[[], object]) -> None:
        """Do something in the loop's thread, and wait until it is done."""

        async def do() -> None:
            act()

        self._run(do())

    async def _open(self) -> None:
        for gate in (self._flows, self._requests, self._answers):
            gate.set()
        self._listener = await asyncio.start_server(self._welcome, "127.0.0.1", self.port)

    async def _close(self) -> None:
        assert self._listener is not None
        # First nobody is accepted any more: when its server closes, asyncio loses a connection that
        # it has just accepted.
        for listening in self._listener.sockets:
            self._loop.remove_reader(listening.fileno())
        self._refuses = True
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(others, timeout=LOOK_SECONDS)
        self._listener.close()

    async def _welcome(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.CancelledError):
            # The server is down, or the proxy closes: either way the client sees a closed
            # connection. A cancelled task would be reported by asyncio's own callback.
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        if self._refuses:
            return
        answers, server = await asyncio.open_connection("127.0.0.1", self.server_port)
        link = _Link(writer, server)
        self._links.add(link)
        pumps = [
            asyncio.ensure_future(self._pump_commands(reader, link)),
            asyncio.ensure_future(self._pump_replies(answers, link)),
        ]
        try:
            # Whichever side ends first ends both: a dead client must be gone for the server too.
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Before anything is awaited: the proxy may close, and cancel this, meanwhile.
            self._links.discard(link)
            link.close()
            for pump in pumps:
                pump.cancel()
            for outcome in await asyncio.gather(*pumps, return_exceptions=True):
                if isinstance(outcome, ValueError):
                    print(f"proxy: {outcome}")

    async def _pump_commands(self, reader: StreamReader, link: _Link) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                command = await read_command(reader)
                await self._flows.wait()
                await self._requests.wait()
                matches = self._judge(command)
                if any(match.does(Action.DROP_REQUEST) for match in matches):
                    return
                if any(match.does(Action.STALL) for match in matches):
                    self._flows.clear()
                    await self._flows.wait()
                if any(match.does(Action.HANG) for match in matches):
                    while True:
                        # Until the client closes it.
                        await read_command(reader)
                self._expect_reply(link, command, matches)
                link.server.write(command.raw)
                await link.server.drain()

    def _expect_reply(self, link: _Link, command: Command, matches: list[Match]) -> None:
        if command.name in SUBSCRIBING_COMMANDS:
            link.is_subscribed = True
        if command.name == "MULTI":
            link.in_transaction = True
        elif command.name in ("EXEC", "DISCARD"):
            matches = [*matches, *link.held_for_exec]
            link.in_transaction, link.held_for_exec = False, []
        elif link.in_transaction:
            link.held_for_exec += matches
            matches = []
        link.awaited.append(matches)

    async def _pump_replies(self, reader: StreamReader, link: _Link) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                reply = await read_reply(reader)
                is_push = reply.startswith(b">")
                if not is_push and not link.is_subscribed and self._drops(link, reply):
                    return
                await self._flows.wait()
                await self._answers.wait()
                if self._delay_seconds:
                    await asyncio.sleep(self._delay_seconds)
                link.client.write(reply)
                await link.client.drain()

    def _drops(self, link: _Link, reply: bytes) -> bool:
        """Whether a rule wants the reply to the oldest command under way."""
        matches = link.awaited.popleft() if link.awaited else ()
        if not reply.startswith(b"-NOSCRIPT"):
            return any(match.does(Action.DROP_REPLY) for match in matches)
        with self._lock:
            for match in matches:
                match.give_back()
        return False

"""One world: a seed decides who is in it, what goes wrong, and who moves when."""

from __future__ import annotations

import gc
import random
import re
import secrets
import uuid
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any
from unittest import mock
from zlib import crc32

import redis
from celery.worker import state
from kombu.exceptions import OperationalError as KombuError

from celery_reliable.app import reliable_of
from celery_reliable.context import set_current_worker
from celery_reliable.exceptions import ReliableError
from tests.ledger.driver import clock, quiet, shifts, tasks
from tests.ledger.driver.climate import Climate
from tests.ledger.driver.events import Events
from tests.ledger.driver.hosts import Host
from tests.ledger.driver.naming import Naming
from tests.ledger.driver.observer import Fault, Observer
from tests.ledger.driver.orders import Orders
from tests.ledger.driver.people import People
from tests.ledger.driver.schedule import Actor, Process, Schedule
from tests.ledger.driver.wire import Wire, shown

#: How long a world may take to come to rest, after the last death that a body caused: so often it
#: is looked whether it has.
_LOOKS = 160
_LOOK_SECONDS = 5.0
_LAST_STEPS = 60
#: For so long kombu lets one worker alone restore what nobody acknowledged.
_MUTEX_MS = 300_000
#: So many bytes of a command go into a world's digest.
_HEAD = 120
_SIZE = re.compile(rb"[*$]\d*\r?\n?")


class World:
    """All that one seed makes."""

    def __init__(
        self, seed: int, stage: Any, *, climate: Climate | None = None, is_traced: bool = False
    ) -> None:
        self.seed = seed
        self.stage = stage
        self.choice = Random(seed)
        # How many names there are decides nothing.
        self._names = Random(-1 - seed)
        self.climate = climate or Climate.of(self.choice)
        self.schedule = Schedule(self.choice)
        self.schedule.haste = self.climate.haste
        self.is_traced = is_traced
        self.steps: deque[str] = deque(maxlen=None if is_traced else _LAST_STEPS)
        self.app = stage.apps[self.climate.is_apart]
        self.connection_errors = (redis.RedisError, OSError, KombuError)
        self.failures = (*self.connection_errors, ReliableError)
        self.processes: dict[int, Process] = {}
        self.wire = Wire(self.schedule, stage, self._trace)
        self.server = self.wire.server = clock.ServerClock(self.schedule, stage)
        self.host_time = clock.HostTime(self.schedule)
        self.hosts: list[Host] = []
        self.observer = Observer(self)
        self.people = People(self)
        self.orders = Orders(self)
        self.naming = Naming(self)
        self.events = Events(self)
        self.is_resting = False
        #: Two runs of one seed have the same.
        self.digest = 0

    # What happened.

    def note(self, what: str) -> None:
        """Write down what the driver did."""
        self.steps.append(f"{self.schedule.now_ms / 1000:9.3f}  -- {what}")

    def _trace(self, who: str, data: bytes) -> str:
        # Each run has other process and connection ids; a script and its key come before them.
        head = _SIZE.sub(b"", data[:_HEAD])
        what = b"" if head.startswith(b"CLIENT") else head
        self.digest = crc32(f"{who} {self.schedule.now_ms} ".encode() + what, self.digest)
        if any(data[:200].find(one) >= 0 for one in self.stage.burials):
            self.observer.buries(data)
        if self.stage.heartbeat in data[:200]:
            self.orders.beats[who.partition("/")[0]].append(self.schedule.now_ms)
        if not self.is_traced:
            return ""
        what = shown(data, self.stage.names_by_sha)
        self.steps.append(f"{self.schedule.now_ms / 1000:9.3f}  {who}: {what}")
        return what

    # Processes.

    def process(self, name: str, parent: Process | None = None) -> Process:
        """Make a process."""
        process = Process(10_000 + len(self.processes), name, parent)
        self.processes[process.pid] = process
        if parent is None:
            process.skew_seconds = self.climate.skew(self.choice)
        return process

    # Running.

    def run(self) -> None:
        """Live, come to rest, and raise Fault for what is wrong."""
        # When it finds what nobody refers to any more, connections are closed.
        gc.disable()
        try:
            with self._begun():
                try:
                    self.events.begin()
                    self.live()
                    self.note("all faults stop")
                    self.is_resting = True
                    self.events.stop()
                    self._come_to_rest()
                    if self.wire.late:
                        # After all that it could have to do with is over.
                        self.events.deliver_late()
                        self._come_to_rest()
                    self.observer.look_at_rest()
                finally:
                    self._end()
        finally:
            gc.enable()

    def live(self) -> None:
        """Let happen what happens, before all faults stop."""
        for _ in range(self.climate.n_steps):
            self.events.maybe()
            self.move()

    def move(self) -> None:
        """Let somebody move, or time pass."""
        schedule = self.schedule
        self.events.catch_up()
        schedule.bury_the_dead()
        for name, error in schedule.errors:
            raise Fault(f"{name} raised {error!r}") from error
        ready = schedule.ready()
        if ready and (self.is_resting or self.choice.random() > self.climate.idleness):
            self.let_move(self.choice.choice(ready))
            return
        wake_ms = schedule.next_wake_ms()
        if wake_ms is None:
            self.pass_time(500)
        else:
            more_ms = self.choice.choice((5, 50, 500, self.climate.longest_pause_ms))
            more_ms = 1000 if self.is_resting else more_ms
            self.pass_time(max(wake_ms - schedule.now_ms, 0) + self.choice.random() * more_ms)

    def let_move(self, actor: Actor) -> None:
        """Let one of them go on, and look at what it has done."""
        actor.go_on()
        if self.observer.fault is not None:
            raise self.observer.fault
        if self.wire.has_written:
            self.wire.has_written = False
            self.observer.look()

    def n_queued(self, queue: str) -> int:
        """How many messages wait in a queue."""
        return int(self.stage.ask_in[self.climate.is_apart]("LLEN", queue))

    def next_in(self, queue: str) -> bytes:
        """The message that is taken next from a queue; empty if none waits there."""
        return bytes(self.stage.ask_in[self.climate.is_apart]("LINDEX", queue, -1) or b"")

    def pass_time(self, ms: float) -> None:
        """Let time pass for all."""
        before_ms, self.schedule.now_ms = self.schedule.now_ms, self.schedule.now_ms + ms
        if before_ms // _MUTEX_MS != self.schedule.now_ms // _MUTEX_MS:
            # Who died with it would keep it for ever, as nothing expires by the real clock.
            self.stage.brokers[self.climate.is_apart].delete("unacked_mutex")
        self.server.show()
        self.wire.give_up_late()

    def _come_to_rest(self) -> None:
        n = n_deaths = 0
        while n < _LOOKS:
            before_ms, n = self.schedule.now_ms, n + 1
            while self.schedule.now_ms - before_ms < _LOOK_SECONDS * 1000:
                self.move()
            if self.observer.is_at_rest():
                return
            self._skip_waiting()
            if n_deaths != (n_deaths := self.observer.n_suicides):
                n = 0
            indexes = self.observer.indexes
            is_far = indexes.last_due_ms() - indexes.now_ms() > 3_600_000
            if n == _LOOKS // 4 and (is_far or "replaced" in indexes.sight.states.values()):
                # A canvas whose members were purged is waited for for so long; and while a task
                # with an ETA has its object, another one asks for that again and again.
                self.note("a day goes by")
                self.pass_time(90_000_000)
        raise Fault(f"it does not come to rest: {self.observer.what_is_left()}")

    def _skip_waiting(self) -> None:
        """Go on to when somebody must look, where that is far away."""
        indexes = self.observer.indexes
        due_ms, now_ms = indexes.next_due_ms(), indexes.now_ms()
        ahead_ms = due_ms - now_ms if due_ms else 0
        # Nobody looks sooner at a run that is over, when the clock was set back.
        ahead_ms = max(ahead_ms, indexes.next_run_ms() - now_ms)
        # What is kept for a time is kept longer by a clock that was set back.
        ahead_ms = max(ahead_ms, self.stage.longest_kept_ms())
        # What was sent before its ETA waits for that in its worker.
        ahead_ms = max([ahead_ms, *(host.next_eta_ms() for host in self.hosts if host.is_up)])
        if ahead_ms > 60_000:
            self.note("nobody moves for a long time")
            self.pass_time(ahead_ms)

    @contextmanager
    def _begun(self) -> Iterator[None]:
        self.stage.empty()
        self.server.begin()
        # What a publisher of the world before has seen is of a time that is still to come.
        reliable_of(self.app).living.close()
        with ExitStack() as stack:
            enter = stack.enter_context
            self.host_time = enter(clock.installed(self.schedule, self.processes))
            enter(self.wire.installed())
            enter(mock.patch.object(secrets, "token_hex", self._token_hex))
            for name in ("uuid1", "uuid4"):
                enter(mock.patch.object(uuid, name, self._uuid))
            for patch in quiet.patches(self):
                enter(patch)
            if self.climate.has_shifts:
                for patch in shifts.patches(self):
                    enter(patch)
            random.seed(self.seed)
            self.app.body = self.observer.body
            self.app.time = lambda: clock.app_now(self.host_time)
            self.app.set_current()
            # Before any worker starts: then each has a queue of its own.
            self.app.conf.worker_direct = self.naming.is_there
            tasks.known_by(self._lacks)
            self.wire.in_its_place = quiet.IN_ITS_PLACE
            yield

    def _lacks(self) -> str:
        actor = self.schedule.current
        return actor.process.lacks if actor else ""

    def _token_hex(self, n_bytes: int = 16) -> str:
        return f"{self._names.getrandbits(8 * n_bytes):0{2 * n_bytes}x}"

    def _uuid(self) -> uuid.UUID:
        return uuid.UUID(int=self._names.getrandbits(128), version=4)

    def _end(self) -> None:
        self.schedule.current = None
        for process in self.processes.values():
            process.is_alive = False
            process.is_frozen = False
        self.schedule.bury_the_dead()
        for host in self.hosts:
            host.close()
        self.people.close()
        state.reset_state()
        set_current_worker(None)
        self.stage.forget(self.app)

"""What happens to a world from outside: calls, operators, deaths, clocks, servers, networks."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from functools import partial
from typing import Any

from celery_reliable.message import Stamp
from tests.ledger.driver.facts import Body
from tests.ledger.driver.hosts import Host
from tests.ledger.driver.tasks import QUEUE

#: How often each thing happens, in a step of a world that knows it.
CHANCES = {
    "publish": 0.1, "act": 0.02, "kill_child": 0.03, "kill_worker": 0.025, "freeze": 0.025,
    "suspend": 0.02, "stop": 0.015, "clock": 0.025, "hiccup": 0.02, "restart": 0.02,
    "rollback": 0.02, "flush_scripts": 0.02, "away": 0.015, "cut": 0.02, "copies": 0.04,
    "late": 0.08, "hostile": 0.02, "sweepers": 0.03, "partition": 0.02, "long": 0.01,
    "orders": 0.04, "named": 0.03,
}  # fmt: skip
_ACTS = ("revoke", "revoke", "replay", "discard", "purge", "release")
_STEPS_SECONDS = (-3600.0, -600.0, -30.0, -1.0, 1.0, 30.0, 600.0, 3600.0)


class Events:
    """Lets things happen by chance."""

    def __init__(self, world: Any) -> None:
        self.world = world
        kinds = world.climate.kinds | {"publish", "act"}
        others = {
            "sweepers": world.people.beat,
            "orders": world.orders.act,
            "named": world.naming.act,
        }
        self._what = [
            (name, chance, others.get(name) or getattr(self, f"_{name}"))
            for name, chance in {**CHANCES, **world.climate.chances}.items()
            if name in kinds
        ]
        self._ends: list[tuple[float, Callable[[], None]]] = []
        self._n_hosts = 0
        #: When all connections were cut the last time.
        self.cut_ms = -1.0
        #: By how much the server's clock was set forward in steps that no pass notices.
        self.unnoticed_seconds = 0.0
        self._messages: list[bytes] = []
        self._snapshot: Any = None

    # The beginning and the end of all trouble.

    def begin(self) -> None:
        """Start the workers."""
        world, wire = self.world, self.world.wire
        if "lost" in world.climate.kinds:
            wire.lost_replies, wire.lost_commands = 0.02, 0.01
        if "late" in world.climate.kinds:
            wire.delays = world.climate.delays
        for _ in range(world.climate.n_hosts):
            self.start_host()

    def stop(self) -> None:
        """Stop all faults; workers that died have successors."""
        world = self.world
        wire = world.wire
        wire.lost_replies = wire.lost_commands = wire.delays = 0.0
        if world.choice.random() < 0.5:
            self.deliver_late()
        ends, self._ends = self._ends, []
        for _, end in ends:
            end()
        if "orders" in world.climate.kinds:
            world.orders.end_all()
        if not [host for host in world.hosts if host.is_up and not host.is_stopping]:
            self.start_host()

    def deliver_late(self) -> None:
        """Let arrive what is still on its way."""
        for late in list(self.world.wire.late):
            while late in self.world.wire.late:
                self.world.note(f"arrives late: {late.what}")
                self.world.wire.deliver_late(late)
                # One may end what the next publishes anew.
                self.world.observer.look()

    def start_host(self, name: str = "") -> None:
        world = self.world
        self._n_hosts += 1
        pool_name = world.choice.choice(world.climate.pool_names)
        name = name or f"w{self._n_hosts}"
        world.note(f"{name} starts")
        host = Host(world, name, pool_name=pool_name, n_slots=world.climate.n_slots)
        if "codeless" in world.climate.kinds and world.choice.random() < 0.4:
            host.main.lacks = world.choice.choice(world.climate.tasks)
            world.note(f"{name} does not know {host.main.lacks}")
        world.hosts.append(host)

    def start_again(self, host: Host) -> None:
        """Another process takes the place of one that has exited."""
        self.world.schedule.kill(host.main)
        host.cut()
        self._until(1.0, self._successor(host))

    def _successor(self, host: Host) -> Callable[[], None]:
        """Who takes the place of a worker: where names matter, one of the same name, or one that
        may run the same.
        """
        name = ""
        if self.world.naming.is_there:
            name = host.name
            if "renamed" in self.world.climate.kinds and self.world.choice.random() < 0.5:
                number = max(int(one.name[1:]) for one in self.world.hosts) + 1
                # Nobody consumes the queue any more that the dead one had for itself.
                name = f"w{number + (number - int(host.name[1:])) % 2}"
        return partial(self.start_host, name)

    def catch_up(self) -> None:
        """End what has lasted long enough."""
        while self._ends and self._ends[0][0] <= self.world.schedule.now_ms:
            self._ends.pop(0)[1]()

    def maybe(self) -> None:
        """Let something happen, perhaps."""
        choice = self.world.choice
        roll = choice.random()
        for _, chance, happen in self._what:
            roll -= chance
            if roll < 0:
                happen()
                return

    def _until(self, seconds: float, end: Callable[[], None]) -> None:
        self._ends.append((self.world.schedule.now_ms + seconds * 1000, end))
        self._ends.sort(key=lambda pair: pair[0])

    # People.

    def _publish(self) -> None:
        world, choice = self.world, self.world.choice
        climate = world.climate
        name = choice.choice(climate.tasks)
        task_id = choice.choice(climate.ids)
        if name in ("unique", "plain") or choice.random() < 0.3:
            task_id = f"{task_id}{choice.randrange(1000)}"
        countdown = choice.choice((0.0,) * 8 + (2.0, 5.0))
        # Plain tasks wait in their worker, for however long that is.
        if "long" in climate.kinds and name != "plain" and choice.random() < 0.2:
            countdown = choice.choice((100.0, 90_100.0))
        world.people.publish(name, task_id, choice.choice(("x", "x", "y")), countdown)

    def _act(self) -> None:
        choice = self.world.choice
        known = sorted({call.task_id for call in self.world.observer.calls.values()})
        if known:
            self.world.people.act(choice.choice(_ACTS), choice.choice(known))

    # Processes.

    def _up(self) -> list[Host]:
        return [host for host in self.world.hosts if host.is_up]

    def kill_of_body(self, body: Body, *, is_whole: bool) -> None:
        """A body kills its process, or its whole worker."""
        body.is_suicide = True
        host = next(one for one in self.world.hosts if body.process in one.processes())
        if is_whole or body.process is host.main:
            self.kill(host)
        else:
            self.world.note(f"a body kills its process {body.process.pid}")
            self.world.schedule.kill(body.process)

    def kill(self, host: Host) -> None:
        """All processes of a worker die; another takes its place, a moment later."""
        world = self.world
        world.note(f"{host.name} is killed, with {len(host.jobs)} jobs")
        if host.identity is not None:
            world.observer.worker_killed(str(host.identity.id))
        for process in host.processes():
            process.is_frozen = False
            world.schedule.kill(process)
        host.cut()
        self._until(world.choice.choice((0.0, 1.0, 20.0)), self._successor(host))

    def _kill_worker(self) -> None:
        up = self._up()
        n = self.world.choice.choice((1, 1, 1, 3))
        for host in self.world.choice.sample(up, min(n, len(up))):
            self.kill(host)

    def _kill_child(self) -> None:
        jobs = [
            (host, job)
            for host in self._up()
            for job in host.jobs
            if job.process is not host.main and job.process.is_alive
        ]
        if jobs:
            self.kill_child(*self.world.choice.choice(jobs))

    def kill_child(self, host: Host, job: Any) -> None:
        """A process of a pool dies."""
        for task_id in host.tasks_of(job):
            self.world.observer.killed(task_id)
        self.world.note(f"child {job.process.pid} is killed")
        self.world.schedule.kill(job.process)

    def _freeze(self) -> None:
        self._stand_still((1.0, 5.0, 15.0, 40.0), is_suspended=False)

    def _suspend(self) -> None:
        """As a freeze, but its monotonic clock stands still too."""
        self._stand_still((5.0, 15.0, 40.0), is_suspended=True)

    def _stand_still(self, times: tuple[float, ...], *, is_suspended: bool) -> None:
        # SIGCONT does not wake a machine that is suspended.
        up = [host for host in self._up() if not host.main.is_frozen]
        if not up:
            return
        choice, began_ms = self.world.choice, self.world.schedule.now_ms
        host, seconds = choice.choice(up), choice.choice(times)
        only_main = not is_suspended and choice.random() < 0.3
        processes = [host.main] if only_main else host.processes()
        self.world.note(f"{host.name} stands still for {seconds} s; suspended: {is_suspended}")
        for process in processes:
            process.is_frozen = True

        def go_on() -> None:
            self.world.note(f"{host.name} moves again")
            for process in processes:
                process.is_frozen = False
                if is_suspended:
                    process.suspended_seconds += (self.world.schedule.now_ms - began_ms) / 1000

        self._until(seconds, go_on)

    def _stop(self) -> None:
        up = [host for host in self._up() if host.is_ready and not host.is_stopping]
        if up:
            host = self.world.choice.choice(up)
            host.is_stopping = self.world.choice.choice(("warm", "cold"))
            self.world.note(f"{host.name} is stopped: {host.is_stopping}")
            self._until(1.0, self._successor(host))

    # The server and the way to it.

    def _clock(self) -> None:
        self._step_clock(self.world.choice.choice(_STEPS_SECONDS))

    def _hiccup(self) -> None:
        """The clock is behind for a moment, in which somebody may start."""
        seconds = self.world.choice.choice((-3600.0, -30.0))
        self._step_clock(seconds)
        if len(self._up()) < 2 * self.world.climate.n_hosts:
            self.start_host()
        self._until(self.world.choice.choice((0.02, 0.2, 1.0)), lambda: self._step_clock(-seconds))

    def _step_clock(self, seconds: float) -> None:
        self.world.note(f"the server's clock steps by {seconds} s")
        if 0.0 < seconds <= 1.0:
            self.unnoticed_seconds += seconds
        self.world.server.ahead_ms += seconds * 1000
        self.world.server.show()

    def _flush_scripts(self) -> None:
        self.world.note("SCRIPT FLUSH")
        self.world.stage.flush_scripts()

    def _cut(self) -> None:
        self.world.note("all connections are cut")
        self._cut_all()

    def _away(self) -> None:
        seconds = self.world.choice.choice((1.0, 8.0, 20.0))
        self.world.note(f"the server is away for {seconds} s")
        self.world.wire.is_away = True
        self._cut_all()

        def back() -> None:
            self.world.note("the server is back")
            self.world.wire.is_away = False

        self._until(seconds, back)

    def _partition(self) -> None:
        """One worker gets no answers, while its connections stay open at the server."""
        up = self._up()
        if not up:
            return
        host = self.world.choice.choice(up)
        seconds = self.world.choice.choice((2.0, 6.0, 15.0))
        self.world.note(f"nobody answers {host.name} for {seconds} s")
        self.world.wire.cut_off.add(host.main)

        def back() -> None:
            self.world.note(f"{host.name} is answered again")
            self.world.wire.cut_off.discard(host.main)

        self._until(seconds, back)

    def _restart(self) -> None:
        """A restart that loses nothing; with a power cut the workers die too."""
        world = self.world
        is_power_cut = world.choice.random() < 0.4
        world.note(f"the server restarts, and loses nothing; power cut: {is_power_cut}")
        if is_power_cut:
            for host in self._up():
                self.kill(host)
        self._cut_all()
        world.server.restart()

    def _rollback(self) -> None:
        """A restart that loses what came after the last snapshot, or everything."""
        world = self.world
        if self._snapshot is None:
            self._snapshot = world.stage.snapshot()
            world.note("the server saves")
            return
        is_all = world.choice.random() < 0.3
        world.note(f"the server restarts, and loses {'everything' if is_all else 'a suffix'}")
        world.stage.restore({} if is_all else self._snapshot)
        self._snapshot = None
        self._cut_all()
        world.server.restart()
        world.server.show()
        world.observer.lost()

    def _cut_all(self) -> None:
        self.cut_ms = self.world.schedule.now_ms
        self.world.stage.cut_all()

    def _late(self) -> None:
        late = self.world.wire.late
        if late:
            one = self.world.choice.choice(late)
            self.world.note(f"arrives late: {one.what}")
            self.world.wire.deliver_late(one)
            self.world.observer.look()

    # Messages.

    def _copies(self) -> None:
        """A message that was in a queue comes again."""
        world = self.world
        broker = world.stage.brokers[world.climate.is_apart]
        found = [one for key in world.naming.queues() for one in broker.lrange(key, 0, -1)]
        self._messages += [one for one in found if one not in self._messages]
        ours = [one for one in self._messages if b'"reliable"' in one]
        if ours:
            world.note("a copy of a message arrives")
            broker.lpush(QUEUE, world.choice.choice(ours))

    def _hostile(self) -> None:
        world = self.world
        broker = world.stage.brokers[world.climate.is_apart]
        ours = [
            one
            for one in broker.lrange(QUEUE, 0, -1)
            # What follows in its chain would be published twice, under an id that is none of its.
            if b'"reliable": "' in one and not _has_chain(one)
        ]
        if ours:
            world.note("a message claims to be of the far future")
            raw = world.choice.choice(ours)
            raw = raw.replace(b'"id": "', b'"id": "h')
            stamp = Stamp("999999999999999", "x").of_task(json.loads(raw)["headers"]["id"])
            head, _, tail = raw.partition(b'"reliable": "')
            tail = stamp.encode() + tail[tail.index(b'"') :]
            broker.lpush(QUEUE, head + b'"reliable": "' + tail)

    def _long(self) -> None:
        """A day goes by."""
        self.world.note("a day goes by")
        self.world.pass_time(90_000_000)


def _has_chain(raw: bytes) -> bool:
    """Whether a message is followed by another in a chain."""
    message = json.loads(raw)
    body = message["body"]
    if message["properties"].get("body_encoding") == "base64":
        body = base64.b64decode(body)
    return bool(json.loads(body)[2].get("chain"))

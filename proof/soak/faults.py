"""Does to a world what its plan says, and notes when it happened and to whom."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from proof.soak.plan import Step
from proof.soak.servers import OneServer, Sentinels
from proof.soak.world import SKEWED, SoakWorld
from tests.support.waiting import wait_for

__all__ = ["Happened", "befall"]

_HOUR = 3600
_POLL_SECONDS = 0.1
_STOP_SECONDS = 60.0
_UP_SECONDS = 120.0
#: How long after it is back a worker may still be declared dead.
_LATE_SECONDS = 2.0


@dataclass(frozen=True)
class Happened:
    """A fault that happened; times are seconds of the log's clock.

    `worker` was away from `began` to `until`, and was `declared_at` dead, if it was. What was
    written within `lost`, if anything, may be gone.
    """

    fault: str
    began: float
    until: float
    worker: str = ""
    declared_at: float | None = None
    lost: tuple[float, float] | None = None


def befall(world: SoakWorld, step: Step) -> Happened:
    """Let it happen, and mend it."""
    began = world.now()
    note = _DO[step.fault](world, step)
    return Happened(step.fault, began, world.now(), **note)


_Note = dict[str, object]


def _latency(world: SoakWorld, step: Step) -> _Note:
    networks = _one(world).networks.values()
    seconds = 0.05 + step.number % 10 * 0.05
    for network in networks:
        network.delay(seconds)
    world.let_pass(step.seconds)
    for network in networks:
        network.delay(0)
    return {}


def _pause(world: SoakWorld, step: Step) -> _Note:
    server = _one(world).server
    if step.way == "SIGSTOP":
        server.freeze()
        world.let_pass(step.seconds)
        server.thaw()
    else:
        server.client().execute_command("CLIENT", "PAUSE", int(step.seconds * 1000))
        world.let_pass(step.seconds)
    return {}


def _set_for_a_while(name: str, value: int) -> Callable[[SoakWorld, Step], _Note]:
    def fault(world: SoakWorld, step: Step) -> _Note:
        client = world.servers.master.client()
        before = client.config_get(name)[name]
        client.config_set(name, value)
        world.let_pass(step.seconds)
        client.config_set(name, before)
        return {}

    return fault


def _script_flush(world: SoakWorld, _: Step) -> _Note:
    world.servers.master.client().script_flush()
    return {}


def _aof(world: SoakWorld, step: Step) -> _Note:
    return {"lost": _one(world).lose_power(world.now, step.seconds)}


def _failover(world: SoakWorld, step: Step) -> _Note:
    assert isinstance(world.servers, Sentinels)
    return {"lost": world.servers.lose_master(world.now, step.seconds)}


def _redis_clock(world: SoakWorld, step: Step) -> _Note:
    server = _one(world).server
    server.set_off(_HOUR if step.way == "forward" else -_HOUR)
    world.let_pass(step.seconds)
    server.set_off(0)
    return {}


def _worker_clock(world: SoakWorld, step: Step) -> _Note:
    world.clock.set_off(_HOUR if step.way == "forward" else -_HOUR)
    world.let_pass(step.seconds)
    world.clock.set_off(0)
    return {"worker": SKEWED}


def _partition(world: SoakWorld, step: Step) -> _Note:
    network = _one(world).networks[step.worker]

    def stall() -> None:
        (network.stall_requests if step.way == "requests" else network.stall_replies)()

    return _cut_off(world, step, stall, network.mend)


def _freeze(world: SoakWorld, step: Step) -> _Note:
    worker = world.workers[step.worker]
    wait_for(lambda: worker.is_ready, _UP_SECONDS, f"{step.worker} to be up")
    return _cut_off(world, step, worker.freeze, worker.thaw)


def _cut_off(
    world: SoakWorld, step: Step, away: Callable[[], None], back: Callable[[], None]
) -> _Note:
    """Keep a worker from its ledger for a while, and see whether it is declared dead."""
    watch = _Watch(world, step.worker)
    away()
    try:
        watch.go_on(step.seconds)
    finally:
        back()
    # It may be declared dead before its next beat is heard.
    watch.go_on(_LATE_SECONDS)
    return {"worker": step.worker, "declared_at": watch.declared_at}


class _Watch:
    """Sees when a worker is declared dead."""

    def __init__(self, world: SoakWorld, name: str) -> None:
        self._world = world
        self._name = name
        wait_for(lambda: world.workers[name].is_ready, _UP_SECONDS, f"{name} to be up")
        # One before it may not be declared dead yet.
        wait_for(lambda: len(world.leases(name)) == 1, _UP_SECONDS, f"one lease of {name}")
        self._known = world.leases(name)
        self._alive_at = world.now()
        self.declared_at: float | None = None

    def go_on(self, seconds: float) -> None:
        """Watch it for so long.  What is noted is a moment at which it was still alive."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self.declared_at is None:
                at = self._world.now()
                if self._known == self._world.leases(self._name) & self._known:
                    self._alive_at = at
                else:
                    self.declared_at = self._alive_at
            time.sleep(_POLL_SECONDS)


def _worker_kill(world: SoakWorld, step: Step) -> _Note:
    world.workers[step.worker].kill_group()
    return _come_back(world, step)


def _child_kill(world: SoakWorld, step: Step) -> _Note:
    children = sorted(world.workers[step.worker].children())
    if children:
        victim = children[step.number % len(children)]
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            pass
    return {"worker": step.worker}


def _stop(number: signal.Signals) -> Callable[[SoakWorld, Step], _Note]:
    def fault(world: SoakWorld, step: Step) -> _Note:
        worker = world.workers[step.worker]
        wait_for(lambda: worker.is_ready, _UP_SECONDS, f"{step.worker} to be up")
        worker.signal_main(number)
        worker.wait_until_ended(_STOP_SECONDS)
        return _come_back(world, step)

    return fault


def _come_back(world: SoakWorld, step: Step) -> _Note:
    time.sleep(step.seconds)
    world.workers[step.worker].end()
    world.start_worker(step.worker)
    return {"worker": step.worker}


def _one(world: SoakWorld) -> OneServer:
    assert isinstance(world.servers, OneServer)
    return world.servers


_DO: dict[str, Callable[[SoakWorld, Step], _Note]] = {
    "latency": _latency,
    "pause": _pause,
    "oom": _set_for_a_while("maxmemory", 1),
    "read-only": _set_for_a_while("min-replicas-to-write", 2),
    "script-flush": _script_flush,
    "aof": _aof,
    "redis-clock": _redis_clock,
    "worker-clock": _worker_clock,
    "partition": _partition,
    "failover": _failover,
    "freeze": _freeze,
    "worker-kill": _worker_kill,
    "child-kill": _child_kill,
    "warm-stop": _stop(signal.SIGTERM),
    "cold-stop": _stop(signal.SIGQUIT),
}

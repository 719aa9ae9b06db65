"""Does to a world what its plan says, and notes when it happened and to whom."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import redis

from proof.soak.patience import patiently
from proof.soak.plan import Step
from proof.soak.servers import OneServer, Sentinels
from proof.soak.suffix import Lost
from proof.soak.world import SKEWED, SoakWorld
from tests.support.waiting import wait_for

__all__ = ["Happened", "befall"]

_HOUR = 3600
_STOP_SECONDS = 60.0
_UP_SECONDS = 120.0


@dataclass(frozen=True)
class Happened:
    """A fault that happened; times are seconds of the log's clock.

    `worker` is whom it befell, if it was one. What was written within `lost`, if anything, may be
    gone. `put_off` are the tasks that its clock made wait for an hour. `measured` is what was seen
    of it where it leaves no trace in the log: seconds that a server took to answer, or by which a
    clock was off; calls that were refused; scripts that were forgotten; bytes that were lost;
    processes that were ended.
    """

    fault: str
    began: float
    until: float
    worker: str = ""
    lost: tuple[float, float] | None = None
    put_off: frozenset[str] = frozenset()
    measured: float = 0.0


def befall(world: SoakWorld, step: Step) -> Happened:
    """Let it happen, and mend it."""
    began = world.now()
    note = _DO[step.fault](world, step)
    return Happened(step.fault, began, world.now(), note.worker, note.lost, measured=note.measured)


@dataclass(frozen=True)
class _Note:
    """Whom it befell, when what was written may be lost, and what was seen of it."""

    worker: str = ""
    lost: tuple[float, float] | None = None
    measured: float = 0.0


def _latency(world: SoakWorld, step: Step) -> _Note:
    networks = _one(world).networks.values()
    seconds = 0.05 + step.number % 10 * 0.05
    for network in networks:
        network.delay(seconds)
    with redis.Redis.from_url(_one(world).networks[step.worker].url()) as client:
        took_seconds = _took(client)
    world.let_pass(step.seconds)
    for network in networks:
        network.delay(0)
    return _Note(measured=took_seconds)


def _pause(world: SoakWorld, step: Step) -> _Note:
    server = _one(world).server
    # So long that a pause is over before, and no longer: what ends the soak waits for the answer.
    patience_seconds = 2 * step.seconds + 10
    with server.client(socket_timeout=patience_seconds) as client, ThreadPoolExecutor(1) as aside:
        client.ping()
        if step.way == "SIGSTOP":
            server.freeze()
        else:
            server.client().execute_command("CLIENT", "PAUSE", int(step.seconds * 1000))
        took = aside.submit(_took, client)
        try:
            world.let_pass(step.seconds)
        finally:
            server.thaw()
        return _Note(measured=took.result())


def _took(client: redis.Redis) -> float:
    """How many seconds the server takes to answer."""
    asked_at = time.monotonic()
    client.ping()
    return time.monotonic() - asked_at


def _refuse_writes(setting: str, value: int, error: str) -> Callable[[SoakWorld, Step], _Note]:
    def fault(world: SoakWorld, step: Step) -> _Note:
        client = world.servers.master.client()
        before = patiently(lambda: client.config_get(setting))[setting]
        refused = _errors(client, error)
        patiently(lambda: client.config_set(setting, value))
        world.let_pass(step.seconds)
        refused = _errors(client, error) - refused
        patiently(lambda: client.config_set(setting, before or 0))
        return _Note(measured=refused)

    return fault


def _errors(client: redis.Redis, name: str) -> int:
    """How often the server has answered with an error, by now."""
    told = patiently(lambda: client.info("errorstats"))
    return int(told.get(f"errorstat_{name}", {}).get("count", 0))


def _script_flush(world: SoakWorld, _: Step) -> _Note:
    client = world.servers.master.client()
    known = int(patiently(lambda: client.info("memory"))["number_of_cached_scripts"])
    patiently(client.script_flush)
    return _Note(measured=known)


def _aof(world: SoakWorld, step: Step) -> _Note:
    return _lost(_one(world).lose_power(world.now, step.seconds))


def _failover(world: SoakWorld, step: Step) -> _Note:
    assert isinstance(world.servers, Sentinels)
    return _lost(world.servers.lose_master(world.now, step.seconds))


def _lost(what: Lost) -> _Note:
    return _Note(lost=(what.since, what.until), measured=what.size)


def _redis_clock(world: SoakWorld, step: Step) -> _Note:
    servers = world.servers
    servers.set_off(_HOUR if step.way == "forward" else -_HOUR)
    off_seconds = patiently(servers.master.client().time)[0] - time.time()
    world.let_pass(step.seconds)
    servers.set_off(0)
    return _Note(measured=off_seconds)


def _worker_clock(world: SoakWorld, step: Step) -> _Note:
    assert world.clock is not None
    off_seconds = _HOUR if step.way == "forward" else -_HOUR
    world.clock.set_off(off_seconds)
    world.let_pass(step.seconds)
    # By its clock it says when the tasks were done whose results it stores.
    shown = world.most_off(off_seconds)
    world.clock.set_off(0)
    return _Note(SKEWED, measured=shown)


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
    """Keep a worker from its ledger for a while."""
    away()
    try:
        world.let_pass(step.seconds)
    finally:
        back()
    return _Note(step.worker)


def _worker_kill(world: SoakWorld, step: Step) -> _Note:
    world.workers[step.worker].kill_group()
    return _come_back(world, step)


def _child_kill(world: SoakWorld, step: Step) -> _Note:
    children, killed = sorted(world.workers[step.worker].children()), 0
    if children:
        victim = children[step.number % len(children)]
        try:
            os.kill(victim, signal.SIGKILL)
            killed = 1
        except ProcessLookupError:
            pass
    return _Note(step.worker, measured=killed)


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
    return _Note(step.worker)


def _one(world: SoakWorld) -> OneServer:
    assert isinstance(world.servers, OneServer)
    return world.servers


_DO: dict[str, Callable[[SoakWorld, Step], _Note]] = {
    "latency": _latency,
    "pause": _pause,
    "oom": _refuse_writes("maxmemory", 1, "OOM"),
    "read-only": _refuse_writes("min-replicas-to-write", 2, "NOREPLICAS"),
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

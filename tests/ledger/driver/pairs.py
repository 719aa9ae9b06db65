"""The pairs whose commands are tried in all orders: who can meet where it matters most."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.ledger.driver.meeting import Pair
from tests.ledger.driver.tasks import LEASE_SECONDS, QUEUE

#: After it a lease has lapsed, and whoever sweeps has had the time to look twice.
_LAPSED_SECONDS = 2 * LEASE_SECONDS


#: What claims: a script of its own, or what takes a message for a process as well.
_CLAIMS = (" claim ", " take ")


def _hold(world: Any, who: str) -> list[Any]:
    """Let nobody move whose name begins so."""
    held = [one for one in world.schedule.actors if one.name.startswith(who)]
    world.schedule.held.update(held)
    return held


def _let_go(world: Any, actors: list[Any]) -> None:
    world.schedule.held.difference_update(actors)


def _are_up(world: Any) -> None:
    """Let the workers come up, and find that there is nothing to do."""
    world.until(lambda: all(one.is_idle and not one.channel._n_waiting for one in world.hosts))


def _first_before(world: Any, *what: str, **asked: Any) -> Any:
    """Return who of the worker w1 stands before *what* with the task "a"."""
    _are_up(world)
    held = _hold(world, "w2/")
    world.people.publish("work", "a", "x", **asked)
    found = world.comes_to(what, _OF_FIRST)
    _let_go(world, held)
    return found


#: Its main process, and the processes of its pool.
_OF_FIRST, _OF_SECOND = ("w1/main", "job of w1"), ("w2/main", "job of w2")


def _sweep_of_a_lapsed(world: Any, *what: str) -> tuple[Any, Any]:
    """Who stands before *what*, and the pass that finds its worker's lease lapsed."""
    first = _first_before(world, *what)
    sweeper = world.comes_to(("begin_pass",), ("w2/passes",))
    _hold(world, "w1/")
    world.goes_by(_LAPSED_SECONDS)
    return first, sweeper


def replay_and_late_settle(world: Any) -> tuple[Any, Any]:
    """A dead letter is replayed as the process that was given up ends its attempt."""
    job = _first_before(world, " settle ", max_losses=0)
    _hold(world, "w1/")
    world.until(lambda: world.observer._sight.states.get("a") == "dead")
    world.people.act("replay", "a")
    return world.comes_to(("",), ("operator replay",)), job


def _claim_of_a_copy(world: Any, *what: str) -> tuple[Any, Any]:
    """Who of one worker stands before *what*, and who of the other before its claim of a copy."""
    _are_up(world)
    mains = [*_hold(world, "w1/main"), *_hold(world, "w2/main")]
    world.people.publish("work", "a", "x")
    broker = world.stage.brokers[world.climate.is_apart]
    raw = world.until(lambda: broker.lrange(QUEUE, 0, -1))[0]
    _let_go(world, mains[:1])
    first = world.comes_to(what, _OF_FIRST)
    rest = _hold(world, "w1/main")
    broker.lpush(QUEUE, raw)
    _let_go(world, mains[1:])
    other = world.comes_to(_CLAIMS, _OF_SECOND)
    _let_go(world, rest)
    return first, other


def take_over_and_settle(world: Any) -> tuple[Any, Any]:
    """A task that was given up is claimed anew as its first attempt ends.

    The worker of the first is taken for dead when the other claims what came again.
    """
    job = _first_before(world, " settle ")
    _hold(world, "w1/")
    return job, world.comes_to(_CLAIMS, _OF_SECOND)


def heartbeat_and_declare(world: Any) -> tuple[Any, Any]:
    """A worker that stood still renews its lease as it is declared dead.

    The worker runs a task, whose body goes on as soon as both are done.
    """
    _are_up(world)
    world.people.publish("work", "a", "x")
    body = world.until(lambda: next(iter(world.observer.bodies), None))
    runner, other = ("w1", "w2") if body.worker.startswith("celery@w1") else ("w2", "w1")
    world.schedule.held.update(body.process.actors)
    sweeper = world.comes_to(("begin_pass",), (f"{other}/passes",))
    beat = world.comes_to(("heartbeat",), (f"{runner}/heartbeat",))
    _hold(world, f"{runner}/")
    world.goes_by(_LAPSED_SECONDS)
    return beat, sweeper


def next_and_death(world: Any) -> tuple[Any, Any]:
    """The only process of a pool dies as it goes on to its next task."""
    _are_up(world)
    world.people.publish("work", "a", "x")
    actor = world.comes_to((" settle ",), _OF_FIRST)
    world.people.publish("work", "b", "x")
    world.until(lambda: world.n_queued(QUEUE))
    host = world.hosts[0]

    def kill() -> None:
        for job in [one for one in host.jobs if one.actor is actor]:
            world.events.kill_child(host, job)

    return actor, world.schedule.start(world.process("somebody"), "kill", kill)


def _revoked(world: Any, *what: str) -> tuple[Any, Any]:
    first = _first_before(world, *what)
    world.people.act("revoke", "a")
    return first, world.comes_to(("",), ("operator revoke",))


def _of_a_killed(world: Any) -> Any:
    """Return who is about to sweep, when the lease of a killed worker has lapsed."""
    _first_before(world, " settle ")
    sweeper = world.comes_to(("begin_pass",), ("w2/passes",))
    host = world.hosts[0]
    world.observer.killed("a")
    for process in host.processes():
        world.schedule.kill(process)
    host.cut()
    world.goes_by(_LAPSED_SECONDS)
    return sweeper


def two_sweepers(world: Any) -> tuple[Any, Any]:
    """Two processes begin a pass."""
    sweeper = _of_a_killed(world)
    world.people.beat()
    return sweeper, world.comes_to(("begin_pass",), ("beat/",))


def slow_sweeper(world: Any) -> tuple[Any, Any]:
    """A sweeper goes on whose pass another has taken over.

    One sweeper stood still for so long that another has begun a pass.
    """
    _let_go(world, [_of_a_killed(world)])
    first = world.comes_to((" lose ",), ("w2/passes",))
    world.goes_by(_LAPSED_SECONDS)
    world.people.beat()
    return first, world.comes_to(("begin_pass",), ("beat/",))


def _pair(meet: Callable[[Any], tuple[Any, Any]], kind: str, **climate: Any) -> Pair:
    """*kind*: the fault that a world may know, as its tasks are charged for it."""
    return Pair(meet, {"kinds": frozenset({kind}), **climate})


_TOGETHER = {
    "claim / sweep": _pair(lambda it: _sweep_of_a_lapsed(it, *_CLAIMS), "freeze"),
    "settle / sweep": _pair(lambda it: _sweep_of_a_lapsed(it, " settle "), "freeze"),
    "retry / sweep": _pair(
        lambda it: _sweep_of_a_lapsed(it, " record "), "freeze", outcomes=("retry",)
    ),
    "replay / late settle": _pair(replay_and_late_settle, "freeze"),
    "retry / claim": _pair(
        lambda it: _claim_of_a_copy(it, " record "), "copies", outcomes=("retry",)
    ),
    "claim / claim": _pair(lambda it: _claim_of_a_copy(it, *_CLAIMS), "copies", outcomes=("long",)),
    "settle / claim": _pair(lambda it: _claim_of_a_copy(it, " settle "), "copies"),
    "take-over / settle": _pair(take_over_and_settle, "freeze"),
    "heartbeat / declare": _pair(heartbeat_and_declare, "freeze", outcomes=("long",)),
    "next / child death": _pair(next_and_death, "kill_child", n_hosts=1, n_slots=1),
    "revoke / claim": _pair(lambda it: _revoked(it, *_CLAIMS), "copies"),
    "revoke / settle": _pair(lambda it: _revoked(it, " settle "), "copies"),
    "two sweepers": _pair(two_sweepers, "kill_child"),
    "slow sweeper": _pair(slow_sweeper, "kill_child"),
}

#: Each with ledger, queues and results on one server, where steps are one script and processes take
#: their own messages, and apart.
PAIRS = {
    f"{name}{how}": replace(
        pair, climate={**pair.climate, "is_apart": is_apart, "has_shifts": not is_apart}
    )
    for how, is_apart in (("", False), (", apart", True))
    for name, pair in _TOGETHER.items()
}

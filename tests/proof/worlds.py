"""Small worlds around the model, explored from end to end: all that publishers, workers, sweepers,
operators and the network can do in them, in every order.

A world is a state of the model and what is outside of it: messages, processes, copies of calls
that are still under way.  `explore` goes through all worlds that can be reached, breadth first, and
checks in each step what is promised:

* *lost*: a task that has not ended is in one place from which it comes back, and is told to have
  ended only if it has;
* *twice at once*: two attempts of a task never run on workers of which none was declared dead;
* *settled twice*, *run after its end*, *called off as it ran*;
* *circle*: a task that kills whoever runs it is buried, and a task beside it is never charged;
* *overlap*: an object is never with more tasks than it has places; *left*: nor with one that ended;
* *idle*: a place is never free while somebody stands in the line;
* *changed by who is over*: an attempt that is not the current one ends and frees nothing;
* *struck*: what an operator has struck does not begin.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from celery_reliable.ledger import Ledger, connect, slots
from proof.model import ANY, Call, Reply, Task, answers, short
from tests.ledger.scene import Locks

Calls = tuple[Call, ...]
Message = tuple[str, str, str]


class Child(NamedTuple):
    """An attempt that runs in a worker; *has*: it has its object."""

    id: str
    attempt: int
    token: str
    epoch: str
    has: bool = False


class Process(NamedTuple):
    """A worker's process.  One that is down never comes back; its name is not used again."""

    name: str
    is_up: bool = True
    children: tuple[Child, ...] = ()


class World(NamedTuple):
    """All there is.  *ended* and *begun* count how often each id was published and ended."""

    ledger: frozenset[tuple[str, Any]]
    queue: tuple[Message, ...] = ()
    unsent: tuple[Message, ...] = ()
    processes: tuple[Process, ...] = ()
    late: Calls = ()
    faults: int = 0
    begun: tuple[tuple[str, int], ...] = ()
    ended: tuple[tuple[str, int], ...] = ()
    epochs: int = 0
    tokens: int = 0
    acts: int = 0
    run_id: str = "run"


class Violated(Exception):
    """A promise was broken.  *path* is how."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.path: list[str] = []


@dataclass(frozen=True)
class Scope:
    """Which world is explored, and what may happen in it."""

    ids: tuple[str, ...] = ("a",)
    workers: tuple[str, ...] = ("v", "w")
    slots: int = 1
    faults: int = 1
    #: How often publishers and operators act beyond the first publication of each id.
    acts: int = 0
    max_losses: int = 1
    #: What may happen: names of steps.
    does: frozenset[str] = frozenset()
    #: The task that kills whatever runs it, mostly.
    poison: str = ""
    object: str = ""
    places: int = 1
    time_to_run_ms: int = 0
    without: frozenset[str] = field(default=frozenset())


class ModelCaller:
    """In the place of the ledger's own: the model does in a world what it asks of a server."""

    def __init__(self, explorer: Explorer) -> None:
        self._explorer = explorer
        self.world = World(frozenset())
        #: The latest call of each script.
        self.calls: dict[str, Call] = {}

    def run(self, step: Any, *_: object) -> Any:
        """Do what `Caller.run` does."""
        _, n_keys, *words = step.call
        return self._run(step.transition, words[:n_keys], words[n_keys:])

    def _run(self, transition: Any, keys: list[Any], args: list[Any]) -> Any:
        second = getattr(transition, "_second", None)
        if second is None:
            return transition.read(self._asked(transition.name, keys, args))
        # The first one's, those of the second behind them, and how many the first one's are.
        n_keys, n_args = args[-2:]
        first = self._run(transition._first, keys[:n_keys], args[:n_args])
        second.answer = self._run(second.transition, keys[n_keys:], args[n_args:-2])
        return first

    def _asked(self, name: str, keys: list[bytes], args: list[Any]) -> list[Any]:
        said = tuple(one.decode() if isinstance(one, bytes) else str(one) for one in args)
        call = Call(name, tuple(short(key.decode()) for key in keys), said, 0, self.world.run_id)
        self.calls[name] = call
        self.world, (word, *values) = self._explorer.made(self.world, call)
        return [word.encode(), *("0" if one is ANY else one for one in values)]


class Explorer:
    """Goes from a world to those that are one step further."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.caller = ModelCaller(self)
        # Nothing is ever connected.
        self.ledger: Any = Ledger(connect("redis://127.0.0.1:1"), "worlds")
        self.locks = Locks(self.ledger)
        for part in (self.ledger, *vars(self.ledger).values()):
            if hasattr(part, "_caller"):
                part._caller = self.caller

    def at(self, world: World) -> Any:
        """Return the ledger, which asks in this world; `world` is then the one after that."""
        self.caller.world = world
        self.ledger.generation = str(dict(dict(world.ledger)["meta"])["generation"])
        return self.ledger

    @property
    def world(self) -> World:
        return self.caller.world

    # The ledger.

    def asked(
        self, world: World, name: str, keys: Iterable[str], *args: object
    ) -> tuple[World, Reply]:
        """Make a call; return the world after it, and the reply."""
        call = Call(name, tuple(keys), tuple(map(str, args)), 0, world.run_id)
        return self.made(world, call)

    def made(self, world: World, call: Call) -> tuple[World, Reply]:
        """Make this call."""
        state = dict(world.ledger)
        outcome = answers(state, call, without=self.scope.without)[0]
        _check_change(state, outcome.changes, call, f"waiting:object {self.scope.object}")
        for key, value in outcome.changes.items():
            if value is None:
                state.pop(key, None)
            else:
                if isinstance(value, Task):
                    # They make times longer, and there is no time here; nor do two waits differ.
                    value = value._replace(resends=0, spent=value.spent[-12:])
                state[key] = value
        return world._replace(ledger=frozenset(state.items())), outcome.reply

    def first(self) -> World:
        """Return the world in which all begins: workers have registered, nothing is published."""
        world = World(frozenset({("meta", (("generation", "0"), ("run_id", "run")))}))
        for name in self.scope.workers:
            world = self.registered(world, name)
        processes = tuple(Process(name) for name in self.scope.workers)
        return world._replace(processes=processes, faults=self.scope.faults, acts=self.scope.acts)

    def registered(self, world: World, worker: str) -> World:
        """Return the world after a worker has registered."""
        keys = ("", f"worker:{worker}", "workers", "meta", "direct")
        return self.asked(world, "register", keys, worker, 0, 0, "{}", 1, 1, "")[0]

    def following(self, world: World) -> Iterator[tuple[str, World]]:
        """Return each step that can be done, and the world after it."""
        from tests.proof.steps import STEPS

        for name, step in STEPS.items():
            if name in self.scope.does:
                for told, after in step(self, world):
                    yield f"{name} {told}", after

    # What is promised.

    def check(self, world: World) -> None:
        """Raise Violated for a world that must not be."""
        state = dict(world.ledger)
        begun, ended = dict(world.begun), dict(world.ended)
        for task_id in self.scope.ids:
            if ended.get(task_id, 0) > begun.get(task_id, 0) and world.run_id == "run":
                raise Violated("settled twice")
            if begun.get(task_id, 0) > ended.get(task_id, 0):
                self._check_place(world, state, task_id)
        for children in _beside(world, state):
            ids = [child.id for child in children]
            if len(ids) != len(set(ids)):
                raise Violated("twice at once")
            if sum(child.has for child in children) > self.scope.places:
                raise Violated("overlap")
        if self.scope.object:
            self._check_locks(world, state)
        self._check_circles(state)

    def _check_place(self, world: World, state: dict[str, Any], task_id: str) -> None:
        """A task that has not ended is queued or waits and somebody looks, or runs, or is dead."""
        task: Task | None = state.get(f"task:{task_id}")
        if task is None:
            # Records were lost with the server: then its message has to do.
            if any(one[0] == task_id for one in (*world.queue, *world.unsent)):
                return
            if "restart" in self.scope.does and world.run_id != "run":
                return
            raise Violated("lost")
        if task.state == "dead":
            return
        if task.stopping_on:
            worker = state.get(f"worker:{task.stopping_on}")
            taken = dict(state.get(f"taken:{task.stopping_on}", ()))
            if worker is not None and worker.state == "alive" and task_id not in taken:
                # Nobody will ever say that it is stopped.
                raise Violated("lost")
        if task.state != "running":
            if task.due is None:
                raise Violated("lost")
            return
        noted = dict(state.get(f"claims:{task.owner}", ())).get(task_id, "")
        is_noted = noted.endswith(f" {task.token}") and f"worker:{task.owner}" in state
        if not is_noted:
            raise Violated("lost")

    def _check_locks(self, world: World, state: dict[str, Any]) -> None:
        for name, lock in state.items():
            if name.startswith("lock:"):
                holder = lock.value.partition(":")[2]
                task: Task | None = state.get(f"task:{holder}")
                if task is None and not lock.value.startswith("kept:"):
                    raise Violated("left")
        places = [f"lock:{one}" for one in slots(self.scope.object, self.scope.places)]
        if state.get(f"waiting:object {self.scope.object}") and not state.keys() >= {*places}:
            raise Violated("idle")

    def _check_circles(self, state: dict[str, Any]) -> None:
        for task_id in self.scope.ids:
            task: Task | None = state.get(f"task:{task_id}")
            if task is None:
                continue
            most = self.scope.max_losses + 1 + self.scope.acts * 2
            if self.scope.poison and len(self.scope.ids) > 1:
                most = self.scope.max_losses + 2 + self.scope.faults
            if self.scope.poison == task_id and (task.attempt or 0) > most:
                raise Violated("circle")
            if self.scope.poison not in ("", task_id) and task.losses > 0:
                raise Violated("circle")


def _check_change(state: dict[str, Any], changes: dict[str, Any], call: Call, line: str) -> None:
    """Who has a place loses it to nobody, and who stands in a line has one in turn."""
    for name, after in changes.items():
        before = state.get(name)
        if name.startswith("lock:") and before is not None:
            holder = before.value.partition(":")[2]
            task: Task | None = state.get(f"task:{holder}")
            lives = task is not None and task.state != "dead" and not task.called_off
            is_freed = after is None or after.value.partition(":")[2] != holder
            if is_freed and lives and holder != call.args[0]:
                raise Violated("changed by who is over")
    left = [one[1] for one in changes.get(line, ()) or ()]
    placed = [one.value[2:] for name, one in changes.items() if name.startswith("lock:") and one]
    stood = [one[1] for one in state.get(line, ()) if one[1] in left or one[1] in placed]
    if any(one in placed for one in stood[len(placed) :]):
        raise Violated("out of turn")


def _beside(world: World, state: dict[str, Any]) -> Iterator[list[Child]]:
    """What runs on workers of which none was declared dead."""
    yield [
        child
        for one in world.processes
        if one.is_up
        and f"worker:{one.name}" in state
        and state[f"worker:{one.name}"].state == "alive"
        for child in one.children
    ]


def explore(scope: Scope, most: int = 2_000_000) -> int:
    """Go through all worlds of a scope; return how many there are.  Raises Violated."""
    explorer = Explorer(scope)
    start = explorer.first()
    came: dict[World, tuple[World, str] | None] = {start: None}
    ahead = deque([start])
    while ahead:
        world = ahead.popleft()
        try:
            for told, after in explorer.following(world):
                if after not in came:
                    came[after] = (world, told)
                    ahead.append(after)
                    last = after
                    try:
                        explorer.check(after)
                    except Violated as found:
                        found.path = _path(came, last)
                        raise
        except Violated as found:
            found.path = found.path or [*_path(came, world), "then"]
            raise
        if len(came) > most:
            raise RuntimeError(f"more than {most} states")
    return len(came)


def _path(came: dict[World, tuple[World, str] | None], world: World) -> list[str]:
    steps: list[str] = []
    at = came[world]
    while at is not None:
        steps.append(at[1])
        at = came[at[0]]
    return steps[::-1]

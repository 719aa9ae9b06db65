"""What can happen in a small world, by name.  Each gives the worlds that may come of it.

The ledger's own methods say what is asked of the model (`worlds.ModelCaller`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from celery_reliable.leases import Verdict, WorkerLease
from celery_reliable.ledger import answers, slots
from celery_reliable.ledger.answers import NotCurrent, Placed, Standing
from celery_reliable.model import Cause, Claim, ClaimRequest, Due, Reason, Room, State, TaskRef
from proof.model import Task
from tests.proof.worlds import Child, Explorer, Message, Process, Violated, World

Told = Iterator[tuple[str, World]]
Step = Callable[[Explorer, World], Told]

_SENDER = "5" * 16


def _counted(counts: tuple[tuple[str, int], ...], task_id: str) -> tuple[tuple[str, int], ...]:
    found = dict(counts)
    found[task_id] = found.get(task_id, 0) + 1
    return tuple(sorted(found.items()))


def _count(counts: tuple[tuple[str, int], ...], task_id: str) -> int:
    return dict(counts).get(task_id, 0)


def _with(world: World, process: Process) -> World:
    found = (process if one.name == process.name else one for one in world.processes)
    return world._replace(processes=tuple(found))


def _queued(world: World, message: Message) -> World:
    return world._replace(queue=tuple(sorted({*world.queue, message})))


def _unsent(world: World, message: Message) -> World:
    return world._replace(unsent=tuple(sorted({*world.unsent, message})))


def _task(world: World, task_id: str) -> Task | None:
    found: Task | None = dict(world.ledger).get(f"task:{task_id}")
    return found


def _generation(world: World) -> str:
    return str(dict(dict(world.ledger)["meta"])["generation"])


def _claim(process: str, child: Child) -> Claim:
    return Claim(child.id, child.attempt, process, child.token)


def _record(
    x: Explorer, world: World, task_id: str, claim: Claim | None = None, **how: Any
) -> tuple[World, Any, Message]:
    attempt = claim.attempt if claim is not None else 0
    epoch = f"{attempt}-00000000-{_SENDER}-{world.epochs + 1}"
    answer = x.at(world).record(
        TaskRef(task_id, "name", x.scope.max_losses), epoch=epoch, state=State.QUEUED,
        due_in_ms=0, message=f"message {epoch}", claim=claim, **how,
    )  # fmt: skip
    world = x.world
    if not isinstance(answer, answers.Unknown | answers.OtherGeneration):
        world = world._replace(epochs=world.epochs + 1)
    return world, answer, (task_id, epoch, _generation(world))


def publish(x: Explorer, world: World) -> Told:  # noqa: C901
    """Somebody publishes an id; again, as often as there are acts left."""
    for task_id in x.scope.ids:
        is_first = _count(world.begun, task_id) == 0
        if not is_first and world.acts == 0:
            continue
        before = _task(world, task_id)
        for told, how in _unique(x).items():
            after, answer, message = _record(x, world, task_id, **how)
            is_recorded = isinstance(answer, answers.Recorded | Standing)
            if not is_first or not is_recorded:
                if world.acts == 0:
                    continue
                after = after._replace(acts=world.acts - 1)
            if is_recorded:
                if before is None or before.state == "dead" or before.called_off:
                    after = after._replace(begun=_counted(after.begun, task_id))
                    if before is not None and before.state == "dead":
                        after = after._replace(ended=_counted(after.ended, task_id))
                if not isinstance(answer, Standing):
                    after = _unsent(after, message)
            yield f"{task_id}{told}", after
            if world.faults and "delay" in x.scope.does:
                # A copy of the call is still under way, over a connection that was given up.
                call = x.caller.calls["record"]
                yield (
                    f"{task_id}{told}, a copy is late",
                    after._replace(late=(*after.late, call), faults=world.faults - 1),
                )


def _unique(x: Explorer) -> dict[str, dict[str, Any]]:
    """Return how a task is published: also as a unique one, or so that it takes its place then."""
    if "early" in x.scope.does:
        return {"": {}, ", early": {"room": Room(x.scope.object, x.scope.places)}}
    if "lock" not in x.scope.does:
        return {"": {}}
    room = Room(x.scope.object, 1)
    return {"": {}, ", unique": {"room": room, "unique": "1"}}


def send(x: Explorer, world: World) -> Told:
    """What is recorded is sent, or its publisher dies before."""
    for message in world.unsent:
        left = world._replace(unsent=tuple(one for one in world.unsent if one != message))
        yield f"{message[0]}", _queued(left, message)
        if world.faults:
            yield f"{message[0]} never", left._replace(faults=world.faults - 1)
            if "withdraw" in x.scope.does:
                # It is there, though the publisher is about to hear an error.
                told = world._replace(faults=world.faults - 1)
                yield f"{message[0]}, as it seems in vain", _queued(told, message)


def withdraw(x: Explorer, world: World) -> Told:
    """The sending raised, though a message may be there all the same."""
    for message in world.unsent:
        task_id, epoch, _ = message
        left = world._replace(unsent=tuple(one for one in world.unsent if one != message))
        before = _task(world, task_id)
        answer = x.at(left).withdraw(task_id, epoch)
        after = x.world
        if isinstance(answer, answers.Cancelled):
            if before is None or before.attempt is not None:
                raise Violated("called off as it ran")
            after = after._replace(ended=_counted(after.ended, task_id))
        yield task_id, after


def deliver(x: Explorer, world: World) -> Told:
    """A worker gets a message and claims its task; or gets it and leaves a copy, as if it died."""
    for message in world.queue:
        left = world._replace(queue=tuple(one for one in world.queue if one != message))
        for process in world.processes:
            if process.is_up and len(process.children) < x.scope.slots:
                yield f"{message} to {process.name}", _claimed(x, left, process, message)
                does = x.scope.does if world.faults else frozenset()
                again = left._replace(faults=world.faults - 1)
                if "duplicate" in does:
                    copied = again._replace(queue=world.queue)
                    yield f"{message}, and again", _claimed(x, copied, process, message)
                if "lose reply" in does:
                    found = _claimed(x, again, process, message, is_twice=True)
                    yield f"{message}, asked for twice", found
                if "delay" in does:
                    found = _claimed(x, again, process, message, is_late=True)
                    yield f"{message}, and a copy of the call is late", found


def _claimed(  # noqa: C901
    x: Explorer, world: World, process: Process, message: Message, *, is_twice: bool = False,
    is_late: bool = False,
) -> World:  # fmt: skip
    task_id, epoch, generation = message
    token = f"t{world.tokens}"
    request = ClaimRequest(
        TaskRef(task_id, "name", x.scope.max_losses, x.scope.time_to_run_ms), epoch, generation,
        process.name, token, 1, strikes=("strike",) if "strike" in x.scope.does else (),
    )  # fmt: skip

    ledger = x.at(world)

    def ask() -> Any:
        answer = ledger.claim(request)
        if isinstance(answer, answers.Unrecorded):
            answer = ledger.claim(request, message=f"message {epoch}")
            if isinstance(answer, answers.Unrecorded):
                raise Violated("lost")
        return answer

    answer = ask()
    if is_twice:
        second = ask()
        if isinstance(answer, answers.Claimed) and answer != second:
            raise Violated("orphan")
        answer = second
    world = x.world
    if is_late:
        world = world._replace(late=(*world.late, x.caller.calls["claim"]))
    is_ended = isinstance(answer, answers.Ended)
    if is_ended and _count(world.begun, task_id) > _count(world.ended, task_id):
        raise Violated("lost")
    if isinstance(answer, answers.NoLease):
        return _queued(world, message)
    if not isinstance(answer, answers.Claimed):
        return world
    if _count(world.begun, task_id) <= _count(world.ended, task_id) and world.run_id == "run":
        raise Violated("run after its end")
    task = _task(world, task_id)
    if task is not None and task.epoch != epoch:
        raise Violated("run by another's message")
    if dict(dict(world.ledger).get("orders", ())).get("strike") and not is_twice:
        raise Violated("struck")
    child = Child(task_id, answer.attempt, token, epoch, bool(answer.place))
    world = world._replace(tokens=world.tokens + 1)
    return _with(world, process._replace(children=tuple(sorted((*process.children, child)))))


def _is_over(world: World, child: Child, answer: Any, done: type) -> None:
    """Raise Violated if an attempt that is not the current one has ended something."""
    task = _task(world, child.id)
    if isinstance(answer, done) and (task is None or task.token != child.token):
        raise Violated("changed by who is over")


def _each(world: World) -> Iterator[tuple[Process, Child, World]]:
    """Each attempt that runs, and the world after its end."""
    for process in world.processes:
        if process.is_up:
            for child in process.children:
                others = tuple(one for one in process.children if one != child)
                yield process, child, _with(world, process._replace(children=others))


def _has_body(x: Explorer, child: Child) -> bool:
    return child.has or not x.scope.object


def settle(x: Explorer, world: World) -> Told:
    """An attempt succeeds."""
    for process, child, left in _each(world):
        if child.id == x.scope.poison or not _has_body(x, child):
            continue
        claim = _claim(process.name, child)
        answer = x.at(left).settle(claim, outcome="SUCCESS")
        after = x.world
        if isinstance(answer, answers.Settled):
            after = after._replace(ended=_counted(after.ended, child.id))
        _is_over(world, child, answer, answers.Settled)
        yield f"{child}: {answer.word}", _unlocked(x, after, claim, child, answer)


def _unlocked(x: Explorer, world: World, claim: Claim, child: Child, answer: Any) -> World:
    """An attempt whose task goes on frees what is its own."""
    if not child.has or isinstance(answer, answers.Settled | answers.Buried):
        return world
    for lock in slots(x.scope.object, x.scope.places):
        before = dict(world.ledger).get(f"lock:{lock}")
        x.at(world)
        if x.locks.free(lock, claim) and before.value != f"{child.attempt}:{child.id}":
            raise Violated("changed by who is over")
        world = x.world
    return world


def fail(x: Explorer, world: World) -> Told:
    """An attempt fails for good, and its task is a dead letter."""
    for process, child, left in _each(world):
        claim, before = _claim(process.name, child), _task(world, child.id)
        answer = x.at(left).bury(claim, Reason.FAILED, exception="", traceback="")
        after = x.world
        if before is not None and before.state != "dead":
            _is_over(world, child, answer, answers.Buried)
        yield f"{child}: {answer.word}", _unlocked(x, after, claim, child, answer)


def retry(x: Explorer, world: World) -> Told:
    """An attempt publishes its own id again."""
    for process, child, left in _each(world):
        if world.acts and _has_body(x, child):
            claim = _claim(process.name, child)
            after, answer, message = _record(x, left, child.id, claim)
            if isinstance(answer, answers.Recorded):
                after = _unsent(after, message)
            after = after._replace(acts=world.acts - 1)
            yield f"{child.id} {child.attempt}", _unlocked(x, after, claim, child, answer)


def become(x: Explorer, world: World) -> Told:
    """An attempt gives its id to a canvas, whose last member is published by and by."""
    for process, child, left in _each(world):
        if world.acts:
            claim = _claim(process.name, child)
            ledger = x.at(left)
            ledger.touch(claim, heir="heir")
            before = _task(x.world, child.id)
            answer = ledger.replace(claim, due_in_ms=0)
            after = x.world
            if before is None or before.waiting_for != "canvas":
                _is_over(world, child, answer, answers.Waiting)
            yield f"{child.id} {child.attempt}", after._replace(acts=world.acts - 1)


def inherit(x: Explorer, world: World) -> Told:
    """The canvas's last member has the id, or another canvas's wants it."""
    for task_id in x.scope.ids:
        task = _task(world, task_id)
        if task is not None and task.waiting_for == "canvas":
            after, answer, message = _record(x, world, task_id, heir="heir")
            if isinstance(answer, answers.Recorded):
                yield task_id, _unsent(after, message)
            if isinstance(_record(x, world, task_id, heir="another")[1], answers.Recorded):
                raise Violated("lost")


def release(x: Explorer, world: World) -> Told:
    """A worker is stopped and gives back what it runs."""
    for process, child, left in _each(world):
        if world.acts:
            claim, before = _claim(process.name, child), _task(world, child.id)
            ledger = x.at(left._replace(acts=world.acts - 1))
            answer = ledger.release(claim, due_in_ms=0, is_unsent=True)
            after = x.world
            if before is not None and before.state != "queued":
                _is_over(world, child, answer, answers.Queued)
            yield f"{child.id} {child.attempt}", after


def _lost(x: Explorer, world: World, claim: Claim, cause: Cause, **how: Any) -> World:
    x.at(world).lose(
        claim, cause, max_losses=x.scope.max_losses, due_in_ms=0, is_unsent=True, **how
    )
    return x.world


def child_dies(x: Explorer, world: World) -> Told:
    """A child is killed; the worker says so.  A poison does that each time."""
    for process, child, left in _each(world):
        is_poison = child.id == x.scope.poison
        if is_poison or world.faults:
            left = left if is_poison else left._replace(faults=world.faults - 1)
            claim = _claim(process.name, child)
            yield f"{child.id} {child.attempt}", _lost(x, left, claim, Cause.CHILD_LOST)


def worker_dies(x: Explorer, world: World) -> Told:
    """A worker's processes are killed.  A poison does that each time."""
    for process in world.processes:
        is_poison = any(child.id == x.scope.poison for child in process.children)
        if process.is_up and (is_poison or world.faults):
            left = world if is_poison else world._replace(faults=world.faults - 1)
            down = Process(process.name, is_up=False)
            if "start" not in x.scope.does:
                for child in process.children:
                    left = _queued(left, (child.id, child.epoch, _generation(world)))
                yield process.name, _with(left, down)
            else:
                # Another one is started, under another name.
                name = process.name[0] + str(int(process.name[1:] or 0) + 1)
                again = x.registered(left, name)
                again = again._replace(processes=(*again.processes, Process(name)))
                yield f"{process.name}, then {name}", _with(again, down)


def _noted(state: Mapping[str, Any], kind: str, worker: str) -> list[Claim]:
    """The claims that are noted of a worker."""
    return [
        Claim(task_id, int(words[0]), worker, words[-1])
        for task_id, noted in dict(state.get(f"{kind}:{worker}", ())).items()
        if (words := noted.split(" "))
    ]


def declare(x: Explorer, world: World) -> Told:
    """The sweeper declares a worker dead, also one that merely looks so, and takes what it ran."""
    state = dict(world.ledger)
    for process in world.processes:
        name = process.name
        worker = state.get(f"worker:{name}")
        if worker is None:
            continue
        if worker.state == "alive" and (not process.is_up or world.faults):
            left = world._replace(faults=world.faults - process.is_up)
            for seen in (worker.renewals, 0) if "beat" in x.scope.does else (worker.renewals,):
                lease = WorkerLease(name, False, 0, str(seen), worker.connection)
                answer = x.at(left).workers.declare(lease, "lapsed", witness_ms=0)
                if answer.word == "declared" and (seen == 0 or worker.lease_until > 0):
                    raise Violated("declared as it beats")
                yield name, x.world
        if worker.state == "dead":
            verdict = Verdict(worker.verdict, worker.charged)
            for claim in _noted(state, "claims", name):
                yield (
                    f"{name} loses {claim.task_id}",
                    _lost(x, world, claim, Cause.WORKER_LOST, is_taken=True, verdict=verdict),
                )
        if worker.state == "dead" or not process.is_up:
            x.at(world).workers.deregister(name, in_unacked=0)
            yield f"{name} is forgotten", x.world


def beat(x: Explorer, world: World) -> Told:
    """A worker renews its lease."""
    for process in world.processes:
        if process.is_up and world.acts:
            name = process.name
            keys = (
                "", f"worker:{name}", "workers", f"taken:{name}", "orders",
                f"stops:{name}", f"claims:{name}", "meta",
            )  # fmt: skip
            left = world._replace(acts=world.acts - 1)
            yield name, x.asked(left, "heartbeat", keys, name, 1000, 0, 2, "")[0]


def assign(x: Explorer, world: World) -> Told:
    """Each member of a run has a worker, and is assigned anew when that has gone."""
    if not dict(world.ledger).get("run:r"):
        x.at(world).runs.begin("r", x.scope.ids, name="name", only=(), due_in_ms=0)
        yield "begins", x.world
        return
    for member in x.scope.ids:
        x.at(world).runs.assign("r", member, x.scope.workers)
        after = x.world
        had = "\n".join(dict(dict(after.ledger)["run:r"]).values()).split("\n")
        if any(had.count(name) > 1 for name in x.scope.workers):
            raise Violated("twice on one worker")
        yield member, after


def orphans(x: Explorer, world: World) -> Told:
    """A worker looks through its claims, and says that what nobody runs is lost."""
    state = dict(world.ledger)
    for process in world.processes:
        worker = state.get(f"worker:{process.name}")
        if process.is_up and worker is not None and worker.state == "alive":
            tokens = {child.token for child in process.children}
            for claim in _noted(state, "claims", process.name):
                if claim.token not in tokens:
                    yield claim.task_id, _lost(x, world, claim, Cause.CHILD_LOST)


def lose_late(x: Explorer, world: World) -> Told:
    """A sweeper that was held up says that an attempt is lost which is over for long."""
    for process in world.processes:
        for task_id in x.scope.ids:
            task = _task(world, task_id)
            if task is not None and task.token == "t0":
                continue
            if world.faults and world.tokens:
                left = world._replace(faults=world.faults - 1)
                after = _lost(x, left, Claim(task_id, 1, process.name, "t0"), Cause.WORKER_LOST)
                if task is not None and task.state == "running" and task != _task(after, task_id):
                    raise Violated("changed by who is over")
                yield task_id, after


def stuck(x: Explorer, world: World) -> Told:
    """An attempt takes too long, and is taken from a worker that lives."""
    for task_id in x.scope.ids:
        task = _task(world, task_id)
        if task is not None and task.state == "running" and task.due and world.faults:
            left = world._replace(faults=world.faults - 1)
            claim = Claim(task_id, task.attempt or 0, task.owner, task.token)
            due_ms = str(task.due)
            yield task_id, _lost(x, left, claim, Cause.STUCK, is_taken=True, due_ms=due_ms)


def stop(x: Explorer, world: World) -> Told:
    """A worker hears what was taken from it, stops that, and says so."""
    state = dict(world.ledger)
    for process in world.processes:
        for claim in _noted(state, "taken", process.name):
            task_id = claim.task_id
            if process.is_up:
                left = tuple(one for one in process.children if one.token != claim.token)
                x.at(_with(world, process._replace(children=left))).workers.acknowledge(claim)
                yield task_id, x.world
            if isinstance(x.at(world).let_go(task_id), answers.Cancelled):
                yield f"{task_id} is let go", x.world
            if process.is_up and world.faults:
                # It says so of a claim that it has mistaken.
                ledger = x.at(world._replace(faults=world.faults - 1))
                ledger.workers.acknowledge(replace(claim, attempt=7, token="other"))
                yield f"{task_id} mistaken", x.world


def resend(x: Explorer, world: World) -> Told:
    """The sweeper sends what is due and in no queue."""
    for task_id in x.scope.ids:
        task = _task(world, task_id)
        if task is None or task.state not in ("queued", "waiting") or task.due is None:
            continue
        message = (task_id, task.epoch, _generation(world))
        if any(one[:2] == message[:2] for one in (*world.queue, *world.unsent)):
            continue
        if task.waiting_for.startswith("order"):
            continue
        answer = x.at(world).resend(Due(task_id, str(task.due)), due_in_ms=0)
        if isinstance(answer, answers.Send):
            yield task_id, _queued(x.world, message)
        elif isinstance(answer, Standing):
            yield f"{task_id} in line", x.world


def replay(x: Explorer, world: World) -> Told:
    """An operator returns a dead letter; or what he takes for one."""
    for task_id in x.scope.ids:
        if not world.acts:
            continue
        epoch = f"0-r-s-{world.epochs}r"
        ledger = x.at(world._replace(acts=world.acts - 1))
        answer = ledger.replay(
            TaskRef(task_id, "name"), epoch=epoch, message=f"message {epoch}", due_in_ms=0
        )
        if isinstance(answer, answers.Recorded):
            yield task_id, _queued(x.world, (task_id, epoch, _generation(world)))


def cancel(x: Explorer, world: World) -> Told:
    """Somebody calls off a publication, the one that is there or one of before."""
    first = f"0-00000000-{_SENDER}-1"
    for task_id in x.scope.ids:
        task = _task(world, task_id)
        if task is None or not world.acts:
            continue
        for epoch in sorted({task.epoch, first}):
            answer = x.at(world._replace(acts=world.acts - 1)).cancel(task_id, epoch=epoch)
            after = x.world
            if isinstance(answer, answers.Cancelled):
                if epoch != task.epoch or (task.waiting_for == "canvas" and epoch == first):
                    raise Violated("lost")
                if task.state == "running":
                    raise Violated("called off as it ran")
                after = after._replace(ended=_counted(after.ended, task_id))
            yield f"{task_id} {epoch}", after


def late(x: Explorer, world: World) -> Told:
    """A copy of a call comes over a connection that was given up: nobody hears the answer."""
    for call in sorted(set(world.late)):
        left = list(world.late)
        left.remove(call)
        before = _task(world, call.args[0])
        after, reply = x.made(world._replace(late=tuple(left)), call)
        task_id = call.args[0]
        is_there = before is None and _task(after, task_id) is not None
        if call.name == "record" and reply[0] == "recorded" and is_there:
            raise Violated("run after its end")
        yield call.name, after


def restart(x: Explorer, world: World) -> Told:
    """The server restarts, and has lost the records that it wrote last."""
    if world.run_id == "run" and world.faults and not world.unsent:
        state = {k: v for k, v in world.ledger if not k.startswith(("task:", "claims:", "sent:"))}
        idle = tuple(one._replace(children=()) for one in world.processes)
        # What had ended is no matter of this world: its messages are gone, too.
        yield "", world._replace(
            ledger=frozenset(state.items()), run_id="other", processes=idle,
            faults=world.faults - 1,
        )  # fmt: skip


def lock(x: Explorer, world: World) -> Told:
    """An attempt takes the object, or that of a task that is over."""
    for process, child, left in _each(world):
        if child.has:
            continue
        claim = _claim(process.name, child)
        x.at(world)
        holder = x.locks.take(x.scope.object, claim)
        if holder is None:
            yield f"{child} has it", _having(x.world, process, child)
        elif not holder:
            yield f"{child} is over", left._replace(ledger=x.world.ledger)


def _having(world: World, process: Process, child: Child) -> World:
    others = tuple(one for one in process.children if one != child)
    own = tuple(sorted((*others, child._replace(has=True))))
    return _with(world, process._replace(children=own))


def place(x: Explorer, world: World) -> Told:
    """An attempt takes a place of its object, or stands in the line; who is due asks again."""
    room = Room(x.scope.object, x.scope.places)
    for process, child, left in _each(world):
        if not child.has:
            claim = _claim(process.name, child)
            answer = x.at(world).take_place(room, claim, due_in_ms=0, stands=True)
            if isinstance(answer, Placed):
                _check_turn(
                    world, x.world, task_id=child.id, line=f"waiting:object {x.scope.object}"
                )
                yield f"{child} has it", _having(x.world, process, child)
            elif isinstance(answer, Standing | NotCurrent):
                yield f"{child} stands, or is over", left._replace(ledger=x.world.ledger)


def _check_turn(before: World, after: World, *, task_id: str, line: str) -> None:
    """Nobody who stands in a line is overtaken by who has just come."""
    had = {lock.value.partition(":")[2] for name, lock in before.ledger if name[:5] == "lock:"}
    task = _task(after, task_id)
    assert task is not None
    turn = int(task.epoch.rpartition("-")[2]) / 4096
    if task_id not in had and any(one[0] < turn for one in dict(after.ledger).get(line, ())):
        raise Violated("out of turn")


def strike(x: Explorer, world: World) -> Told:
    """An operator strikes the task, and ends that."""
    orders = dict(dict(world.ledger).get("orders", ()))
    if world.acts and not orders:
        args = ("strike", "strike", "name", "", "", "", "me", "", 0, "0")
        after, _ = x.asked(world._replace(acts=world.acts - 1), "order", ("", "orders"), *args)
        yield "", after
    if "strike" in orders:
        x.at(world).orders.resume("strike", by="me")
        yield "ends", x.world


#: By the name that a scope gives.
STEPS: Mapping[str, Step] = {
    "publish": publish, "send": send, "withdraw": withdraw, "deliver": deliver, "settle": settle,
    "fail": fail, "retry": retry, "become": become, "inherit": inherit, "release": release,
    "child dies": child_dies, "worker dies": worker_dies, "declare": declare,
    "lose late": lose_late, "stuck": stuck, "stop": stop, "resend": resend, "replay": replay,
    "cancel": cancel, "late": late, "restart": restart, "lock": lock, "place": place,
    "strike": strike, "orphans": orphans, "beat": beat,
    "assign": assign,
}  # fmt: skip

"""What can happen in a small world, by name.  Each gives the worlds that may come of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from proof.model import Call, Reply, Task
from tests.proof.worlds import Child, Explorer, Message, Process, Violated, World

Told = Iterator[tuple[str, World]]
Step = Callable[[Explorer, World], Told]


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


def _task(world: World, task_id: str) -> Task | None:
    found: Task | None = dict(world.ledger).get(f"task:{task_id}")
    return found


def _generation(world: World) -> str:
    return str(dict(dict(world.ledger)["meta"])["generation"])


def _record(
    x: Explorer, world: World, task_id: str, *, child: Child | None = None, at: str = "none",
    heir: str = "", waits_for: str = "", mode: str = "",
) -> tuple[World, Reply, Message, Call]:  # fmt: skip
    epoch = f"{child.attempt if child else 0}-e-s-{world.epochs + 1}"
    message = (task_id, epoch, _generation(world))
    call = Call(
        "record",
        (f"task:{task_id}", "due", "meta", f"claims:{at}", "dead", "none", "sent:s"),
        tuple(
            map(
                str,
                (
                    task_id, epoch, message[2], "queued", 0, f"message {epoch}", "name",
                    child.attempt if child else "", x.scope.max_losses,
                    child.token if child else "", 1000, "", heir, world.epochs + 1, "",
                    waits_for, "", mode,
                ),
            )
        ),
        0,
        world.run_id,
    )  # fmt: skip
    world, reply = x.made(world, call)
    if reply[0] in ("recorded", "exists", "fenced"):
        world = world._replace(epochs=world.epochs + 1)
    return world, reply, message, call


def publish(x: Explorer, world: World) -> Told:
    """Somebody publishes an id; again, as often as there are acts left."""
    for task_id in x.scope.ids:
        is_first = _count(world.begun, task_id) == 0
        if not is_first and world.acts == 0:
            continue
        before = _task(world, task_id)
        after, reply, message, call = _record(x, world, task_id)
        if not is_first:
            after = after._replace(acts=world.acts - 1)
        if reply[0] == "recorded":
            if before is None or before.state == "dead" or before.called_off:
                after = after._replace(begun=_counted(after.begun, task_id))
                if before is not None and before.state == "dead":
                    after = after._replace(ended=_counted(after.ended, task_id))
            after = after._replace(unsent=tuple(sorted({*after.unsent, message})))
        yield task_id, after
        if world.faults and "delay" in x.scope.does:
            # A copy of the call is still under way, over a connection that was given up.
            yield (
                f"{task_id}, a copy is late",
                after._replace(late=(*after.late, call), faults=world.faults - 1),
            )


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
        keys = (f"task:{task_id}", "due", "lock:o")
        after, reply = x.asked(left, "withdraw", keys, task_id, epoch, x.scope.object)
        if reply[0] == "withdrawn":
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
                if world.faults and "duplicate" in x.scope.does:
                    copied = world._replace(faults=world.faults - 1)
                    told = f"{message} to {process.name} and again"
                    yield told, _claimed(x, copied, process, message)
                if world.faults and "lose reply" in x.scope.does:
                    told = f"{message} to {process.name}, which asks twice"
                    again = left._replace(faults=world.faults - 1)
                    yield told, _claimed(x, again, process, message, times=2)
                if world.faults and "delay" in x.scope.does:
                    told = f"{message} to {process.name}, a copy of the call is late"
                    again = left._replace(faults=world.faults - 1)
                    yield told, _claimed(x, again, process, message, is_late=True)


def _claim_call(x: Explorer, world: World, process: Process, message: Message, body: str) -> Call:
    task_id, epoch, generation = message
    keys = (
        f"task:{task_id}", "due", "meta", f"worker:{process.name}", f"claims:{process.name}",
        "orders", "ordered",
    )  # fmt: skip
    args = (
        task_id, epoch, generation, process.name, f"t{world.tokens}", "1", x.scope.time_to_run_ms,
        "name", x.scope.max_losses, body, "1",
    )  # fmt: skip
    order = ("strike",) if "strike" in x.scope.does else ()
    return Call("claim", keys, (*map(str, args), *order), 0, world.run_id)


def _claimed(  # noqa: C901
    x: Explorer, world: World, process: Process, message: Message, *, times: int = 1,
    is_late: bool = False,
) -> World:  # fmt: skip
    task_id, epoch, _ = message
    body, reply = "", ("unrecorded",)
    while reply[0] == "unrecorded":
        call = _claim_call(x, world, process, message, body)
        for _ in range(times):
            before = reply
            world, reply = x.made(world, call)
            if before[0] == "claimed" != reply[0]:
                raise Violated("orphan")
        if reply[0] == "unrecorded" and body:
            raise Violated("lost")
        body = f"message {epoch}"
    if is_late:
        world = world._replace(late=(*world.late, call))
    if reply[0] == "ended" and _count(world.begun, task_id) > _count(world.ended, task_id):
        raise Violated("lost")
    if reply[0] == "no_lease":
        return _queued(world, message)
    if reply[0] != "claimed":
        return world
    if _count(world.begun, task_id) <= _count(world.ended, task_id) and world.run_id == "run":
        raise Violated("run after its end")
    task = _task(world, task_id)
    if task is not None and task.epoch != epoch:
        raise Violated("run by another's message")
    if dict(dict(world.ledger).get("orders", ())).get("strike") and not times > 1:
        raise Violated("struck")
    child = Child(task_id, int(reply[1]), f"t{world.tokens}", epoch)
    world = world._replace(tokens=world.tokens + 1)
    return _with(world, process._replace(children=tuple(sorted((*process.children, child)))))


def _is_over(world: World, child: Child, reply: Reply, done: str) -> None:
    """Raise Violated if an attempt that is not the current one has ended something."""
    task = _task(world, child.id)
    if reply[0] == done and (task is None or task.token != child.token):
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
        lock = _lock_of(world, child.id)
        keys = (f"task:{child.id}", "due", f"claims:{process.name}", "none", lock, "ended", "at")
        args = (child.id, child.attempt, child.token, "", "", 0, "", 0, 0)
        named = x.scope.object and _named(lock)
        after, reply = x.asked(left, "settle", keys, *args, named, "SUCCESS", "", 10)
        if reply[0] == "settled":
            after = after._replace(ended=_counted(after.ended, child.id))
        if reply[0] == "object":
            raise Violated("left")
        _is_over(world, child, reply, "settled")
        yield f"{child.id} {child.attempt}: {reply[0]}", _unlocked(x, after, child, reply)


def _lock_of(world: World, task_id: str) -> str:
    task = _task(world, task_id)
    return f"lock:{task.object}" if task is not None and task.object else "none"


def _named(lock: str) -> str:
    return lock.removeprefix("lock:") if lock != "none" else ""


def _unlocked(x: Explorer, world: World, child: Child, reply: Reply) -> World:
    """An attempt whose task goes on frees what is its own."""
    if not child.has or reply[0] in ("settled", "buried"):
        return world
    for lock in _locks(x):
        keys = (lock, f"task:{child.id}")
        before = dict(world.ledger).get(lock)
        args = (child.id, child.attempt, child.token, _named(lock))
        world, said = x.asked(world, "unlock", keys, *args)
        if said[0] == "unlocked" and before.value != f"{child.attempt}:{child.id}":
            raise Violated("changed by who is over")
    return world


def fail(x: Explorer, world: World) -> Told:
    """An attempt fails for good, and its task is a dead letter."""
    for process, child, left in _each(world):
        lock = _lock_of(world, child.id)
        keys = (f"task:{child.id}", "due", f"claims:{process.name}", "dead", lock)
        args = (child.id, child.attempt, "failed", "", "", "", "", child.token, "", "", "")
        after, reply = x.asked(left, "bury", keys, *args, _named(lock))
        before = _task(world, child.id)
        if before is not None and before.state != "dead":
            _is_over(world, child, reply, "buried")
        yield f"{child.id} {child.attempt}: {reply[0]}", _unlocked(x, after, child, reply)


def retry(x: Explorer, world: World) -> Told:
    """An attempt publishes its own id again."""
    for process, child, left in _each(world):
        if world.acts and _has_body(x, child):
            after, reply, message, _ = _record(x, left, child.id, child=child, at=process.name)
            if reply[0] == "recorded":
                after = after._replace(unsent=tuple(sorted({*after.unsent, message})))
            after = after._replace(acts=world.acts - 1)
            yield f"{child.id} {child.attempt}", _unlocked(x, after, child, reply)


def become(x: Explorer, world: World) -> Told:
    """An attempt gives its id to a canvas, whose last member is published by and by."""
    for process, child, left in _each(world):
        if world.acts:
            keys: tuple[str, ...] = (f"task:{child.id}",)
            after, reply = x.asked(left, "bequeath", keys, child.attempt, child.token, "heir")
            keys = (f"task:{child.id}", "due", f"claims:{process.name}")
            args = (child.id, child.attempt, 0, child.token, "", "[]")
            before = _task(after, child.id)
            after, reply = x.asked(after, "replace", keys, *args)
            if before is None or before.state != "waiting":
                _is_over(world, child, reply, "waiting")
            yield f"{child.id} {child.attempt}", after._replace(acts=world.acts - 1)


def inherit(x: Explorer, world: World) -> Told:
    """The canvas's last member has the id, or another canvas's wants it."""
    for task_id in x.scope.ids:
        task = _task(world, task_id)
        if task is not None and task.state == "waiting" and not task.called_off:
            after, reply, message, _ = _record(x, world, task_id, heir="heir")
            if reply[0] == "recorded":
                yield task_id, after._replace(unsent=tuple(sorted({*after.unsent, message})))
            after, reply, _, _ = _record(x, world, task_id, heir="another")
            if reply[0] == "recorded":
                raise Violated("lost")


def release(x: Explorer, world: World) -> Told:
    """A worker is stopped and gives back what it runs."""
    for process, child, left in _each(world):
        if world.acts:
            keys = (f"task:{child.id}", "due", f"claims:{process.name}")
            args = (child.id, child.attempt, 0, child.token, "1")
            after, reply = x.asked(left._replace(acts=world.acts - 1), "release", keys, *args)
            before = _task(world, child.id)
            if before is not None and before.state != "queued":
                _is_over(world, child, reply, "released")
            yield f"{child.id} {child.attempt}", after


def _lost(
    x: Explorer, world: World, process: str, child: tuple[str, int, str], cause: str,
    *, is_counted: str = "1", is_death: str = "", is_taken: str = "", due: str = "",
) -> World:  # fmt: skip
    task_id, attempt, token = child
    lock = _lock_of(world, task_id)
    keys = (f"task:{task_id}", "due", f"claims:{process}", f"taken:{process}", "dead", lock)
    args = (
        task_id, attempt, cause, x.scope.max_losses, 0, token, is_taken, due, "1", is_counted,
        is_death, "", _named(lock),
    )  # fmt: skip
    after, _ = x.asked(world, "lose", keys, *args)
    return after


def child_dies(x: Explorer, world: World) -> Told:
    """A child is killed; the worker says so.  A poison does that each time."""
    for process, child, left in _each(world):
        is_poison = child.id == x.scope.poison
        if is_poison or world.faults:
            left = left if is_poison else left._replace(faults=world.faults - 1)
            one = (child.id, child.attempt, child.token)
            yield f"{child.id} {child.attempt}", _lost(x, left, process.name, one, "child_lost")


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
                keys = (f"worker:{name}", "workers", "meta", "direct")
                again, _ = x.asked(left, "register", keys, name, 0, 0, "{}", 1, 1, "")
                again = again._replace(processes=(*again.processes, Process(name)))
                yield f"{process.name}, then {name}", _with(again, down)


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
            keys = (f"worker:{name}", "workers", "meta", f"claims:{name}")
            for seen in (worker.renewals, 0) if "beat" in x.scope.does else (worker.renewals,):
                args = (name, "lapsed", seen, worker.connection, 0, "")
                after, reply = x.asked(left, "declare", keys, *args)
                if reply[0] == "declared" and (seen == 0 or worker.lease_until > 0):
                    raise Violated("declared as it beats")
                yield name, after
        if worker.state == "dead":
            for task_id, noted in dict(state.get(f"claims:{name}", ())).items():
                attempt, _, token = noted.split(" ")
                charged = "1" if worker.charged == task_id else ""
                is_beside = worker.verdict == "suspect" and not charged
                yield (
                    f"{name} loses {task_id}",
                    _lost(
                        x, world, name, (task_id, int(attempt), token), "worker_lost",
                        is_counted=charged, is_death="2" if is_beside else "1", is_taken="1",
                    ),
                )  # fmt: skip
        if worker.state == "dead" or not process.is_up:
            keys = (f"worker:{name}", "workers", f"claims:{name}", f"taken:{name}", f"stops:{name}")
            yield f"{name} is forgotten", x.asked(world, "deregister", keys, name, 0, 0)[0]


def beat(x: Explorer, world: World) -> Told:
    """A worker renews its lease."""
    for process in world.processes:
        if process.is_up and world.acts:
            name = process.name
            keys = (
                f"worker:{name}", "workers", f"taken:{name}", "minutes", "orders", f"stops:{name}",
                f"claims:{name}", "meta",
            )  # fmt: skip
            left = world._replace(acts=world.acts - 1)
            yield name, x.asked(left, "heartbeat", keys, name, 1000, 0, 2, "")[0]


def assign(x: Explorer, world: World) -> Told:
    """Each member of a run has a worker, and is assigned anew when that has gone."""
    keys = ("run:r", "runs")
    if not dict(world.ledger).get("run:r"):
        yield "begins", x.asked(world, "begin_run", keys, "r", "name", "[]", 0, *x.scope.ids)[0]
        return
    for member in x.scope.ids:
        after, _ = x.asked(world, "assign", keys, member, "", "r", *x.scope.workers)
        had = [
            name
            for names in dict(dict(after.ledger)["run:r"]).values()
            for name in names.split("\n")
        ]
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
            for task_id, noted in dict(state.get(f"claims:{process.name}", ())).items():
                attempt, _, token = noted.split(" ")
                if token not in tokens:
                    one = (task_id, int(attempt), token)
                    yield task_id, _lost(x, world, process.name, one, "child_lost")


def lose_late(x: Explorer, world: World) -> Told:
    """A sweeper that was held up says that an attempt is lost which is over for long."""
    for process in world.processes:
        for task_id in x.scope.ids:
            task = _task(world, task_id)
            if task is not None and task.token == "t0":
                continue
            if world.faults and world.tokens:
                left = world._replace(faults=world.faults - 1)
                after = _lost(x, left, process.name, (task_id, 1, "t0"), "worker_lost")
                if task is not None and task.state == "running" and task != _task(after, task_id):
                    raise Violated("changed by who is over")
                yield task_id, after


def stuck(x: Explorer, world: World) -> Told:
    """An attempt takes too long, and is taken from a worker that lives."""
    for task_id in x.scope.ids:
        task = _task(world, task_id)
        if task is not None and task.state == "running" and task.due and world.faults:
            left = world._replace(faults=world.faults - 1)
            one = (task_id, task.attempt or 0, task.token)
            yield (
                task_id,
                _lost(x, left, task.owner, one, "stuck", is_taken="1", due=str(task.due)),
            )


def stop(x: Explorer, world: World) -> Told:
    """A worker hears what was taken from it, stops that, and says so."""
    state = dict(world.ledger)
    for process in world.processes:
        for task_id, claim in dict(state.get(f"taken:{process.name}", ())).items():
            lock = _lock_of(world, task_id)
            keys = (f"taken:{process.name}", f"task:{task_id}", "due", lock)
            if process.is_up:
                left = tuple(
                    one for one in process.children if f"{one.attempt} {one.token}" != claim
                )
                after = _with(world, process._replace(children=left))
                yield task_id, x.asked(after, "acknowledge", keys, task_id, claim, _named(lock))[0]
            keys = (f"task:{task_id}", f"worker:{process.name}", lock)
            yield (
                f"{task_id}, or not",
                x.asked(world, "outlive", keys, task_id, process.name, _named(lock))[0],
            )
            if process.is_up and world.faults:
                # It says so of a claim that it has mistaken.
                keys = (f"taken:{process.name}", f"task:{task_id}", "due", lock)
                left_over = world._replace(faults=world.faults - 1)
                args = (task_id, "7 other", _named(lock))
                yield f"{task_id} mistaken", x.asked(left_over, "acknowledge", keys, *args)[0]


def resend(x: Explorer, world: World) -> Told:
    """The sweeper sends what is due and in no queue."""
    for task_id in x.scope.ids:
        task = _task(world, task_id)
        if task is None or task.state not in ("queued", "parked") or task.due is None:
            continue
        message = (task_id, task.epoch, _generation(world))
        if any(one[:2] == message[:2] for one in (*world.queue, *world.unsent)):
            continue
        if task.state == "parked" and task.waiting_for.startswith(("order", "object")):
            continue
        keys = (f"task:{task_id}", "due", "none")
        after, reply = x.asked(world, "resend", keys, task_id, task.due, 0, "", "", "", "")
        if reply[0] == "send":
            yield task_id, _queued(after, message)


def replay(x: Explorer, world: World) -> Told:
    """An operator returns a dead letter; or what he takes for one."""
    for task_id in x.scope.ids:
        task = _task(world, task_id)
        if task is None or not world.acts:
            continue
        epoch = f"0-r-s-{world.epochs}r"
        keys = (f"task:{task_id}", "due", "dead", "meta")
        args = (task_id, epoch, _generation(world), f"message {epoch}", 0, "me", "")
        after, reply = x.asked(world._replace(acts=world.acts - 1), "replay", keys, *args)
        if reply[0] == "replayed":
            yield task_id, _queued(after, (task_id, epoch, _generation(world)))


def cancel(x: Explorer, world: World) -> Told:
    """Somebody calls off a publication, the one that is there or one of before."""
    for task_id in x.scope.ids:
        task = _task(world, task_id)
        if task is None or not world.acts:
            continue
        for epoch in sorted({task.epoch, "0-e-s-1"}):
            lock = _lock_of(world, task_id)
            keys = (f"task:{task_id}", "due", lock, "ended", "at")
            left = world._replace(acts=world.acts - 1)
            args = (task_id, epoch, 0, "", _named(lock), "REVOKED", "me", 10)
            after, reply = x.asked(left, "cancel", keys, *args)
            there = dict(world.ledger).get(lock)
            if there is not None and lock not in dict(after.ledger) and there.value[2:] != task_id:
                raise Violated("changed by who is over")
            if reply[0] == "cancelled":
                if epoch != task.epoch or (task.state == "waiting" and epoch == "0-e-s-1"):
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


def _locks(x: Explorer) -> list[str]:
    names = [x.scope.object, *(f"{x.scope.object}#{n}" for n in range(2, x.scope.places + 1))]
    return [f"lock:{name}" for name in names]


def lock(x: Explorer, world: World) -> Told:
    """An attempt takes its object, or another one's whose task is over; else it goes back."""
    state = dict(world.ledger)
    for process, child, left in _each(world):
        if child.has:
            continue
        key = _locks(x)[0]
        there = state.get(key)
        seen = there.value if there else ""
        keys = (key, f"task:{child.id}", f"task:{seen.partition(':')[2]}")
        args = (child.id, child.attempt, seen, child.token, _named(key))
        after, reply = x.asked(world, "lock", keys, *args)
        yield from _after_lock(x, after, process, child, reply, left)


def _after_lock(
    x: Explorer, after: World, process: Process, child: Child, reply: Reply, left: World
) -> Told:
    told = f"{child.id} {child.attempt}: {reply[0]}"
    if reply[0] in ("locked", "placed"):
        others = tuple(one for one in process.children if one != child)
        own = tuple(sorted((*others, child._replace(has=True))))
        yield told, _with(after, process._replace(children=own))
    elif reply[0] == "fenced":
        others = tuple(one for one in process.children if one != child)
        yield told, _with(after, process._replace(children=others))
    elif reply[0] in ("held", "stopping") and "place" not in x.scope.does:
        again, said, message, _ = _record(
            x, left, child.id, child=child, at=process.name, waits_for="object o"
        )
        if said[0] == "recorded" and left.acts:
            again = again._replace(acts=left.acts - 1)
            yield told, again._replace(unsent=tuple(sorted({*again.unsent, message})))


def place(x: Explorer, world: World) -> Told:
    """An attempt takes a place of its object, or stands in the line; who is due asks again."""
    state = dict(world.ledger)
    locks = _locks(x)
    values = [state[key].value if key in state else "" for key in locks]
    about = [word for pair in zip(map(_named, locks), values, strict=True) for word in pair]
    slots = [
        word
        for key, value in zip(locks, values, strict=True)
        for word in (key, f"task:{value.partition(':')[2]}" if value else "none")
    ]
    line = f"waiting:{x.scope.object}"
    for process, child, left in _each(world):
        if not child.has:
            keys = (f"task:{child.id}", "due", line, f"claims:{process.name}", "none", *slots)
            args = (child.id, child.attempt, child.token, x.scope.object, "1", 0, "", *about)
            after, reply = x.asked(world, "place", keys, *args)
            if reply[0] == "standing":
                others = tuple(one for one in process.children if one != child)
                yield f"{child.id} stands", _with(after, process._replace(children=others))
            yield from _after_lock(x, after, process, child, reply, left)
    first = [one for one in dict(world.ledger).get(line, ()) if _task(world, one[1])]
    for task_id in x.scope.ids:
        task = _task(world, task_id)
        if task is not None and task.state == "parked":
            keys = (f"task:{task_id}", "due", line, "none", "none", *slots)
            args = (task_id, 0, task.epoch, x.scope.object, "", 0, "", *about)
            after, reply = x.asked(world, "place", keys, *args)
            if reply[0] == "send":
                if first and first[0][1] != task_id and len(locks) == 1:
                    raise Violated("out of turn")
                yield f"{task_id} has it", _queued(after, (task_id, task.epoch, _generation(world)))


def strike(x: Explorer, world: World) -> Told:
    """An operator strikes the task, and ends that."""
    orders = dict(dict(world.ledger).get("orders", ()))
    if world.acts and not orders:
        args = ("strike", "strike", "name", "", "", "", "me", "", 0, "0")
        after, _ = x.asked(world._replace(acts=world.acts - 1), "order", ("orders",), *args)
        yield "", after
    if "strike" in orders:
        keys = ("orders", "due", "ordered")
        after, _ = x.asked(world, "resume", keys, "strike", "me", 10)
        yield "ends", after


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

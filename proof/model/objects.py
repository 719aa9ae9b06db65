"""Rules of objects: their locks, their places, and the lines of those that wait for one."""

from __future__ import annotations

import re

from proof.model.state import Lock, Reply, Task, View

__all__ = [
    "free", "free_place", "is_spent", "kept_ms", "leave", "let_in", "let_out", "object_rules",
    "place_for", "slots", "spend", "stand_for", "turn_of",
]  # fmt: skip

_HELD = re.compile(r"^\d+:(.*)$", re.DOTALL)
_NUMBER = re.compile(r"-(\d+)$")


def slots(object_key: str, places: int) -> list[str]:
    """Return what the places of an object are called."""
    return [object_key, *(f"{object_key}#{n}" for n in range(2, places + 1))]


def _holder(value: str | None) -> str | None:
    """Return the task that holds a lock; None for none, also where it is kept."""
    held = _HELD.match(value or "")
    return held[1] if held else None


def spend(spent: str, token: str) -> str:
    """Return the tokens of attempts that are over; a late copy of their claims begins nothing."""
    return f"{spent} {token} "[-200:] if token else spent


def is_spent(task: Task, token: str) -> bool:
    """Tell whether the attempt with this token is over."""
    return token != "" and f" {token} " in task.spent


def turn_of(published_ms: float, epoch: str) -> float:
    """Return where a task stands among others: by its publication, within a ms by its number."""
    found = _NUMBER.search(epoch)
    return published_ms + (int(found[1]) if found else 0) % 4096 / 4096


def kept_ms(v: View, object_key: str) -> float | None:
    """Return for how long an object is kept after a success; None where it is not."""
    lock: Lock | None = v.get(f"lock:{object_key}")
    if lock is None or lock.until_ms is None or v.expiring(f"lock:{object_key}") is None:
        return None
    return max(lock.until_ms - v.server_ms, 0)


def _is_over(v: View, holder: str) -> bool:
    """Tell whether the task that a lock names has ended, and nothing of it is to be stopped."""
    task: Task | None = v.get(f"task:{holder}")
    if task is not None and task.state != "dead" and not task.called_off:
        return False
    is_stopping = v.still_stopping(f"task:{holder}") != ""
    return not is_stopping or not v.holds("what is to be stopped has its object")


def free_place(
    v: View, object_key: str, places: int, task_id: str
) -> tuple[str | None, bool, str | None]:
    """Return a place that a task may have, whether that is its own, and who has the first."""
    free, first = None, None
    for n, place in enumerate(slots(object_key, places)):
        value = v.expiring(f"lock:{place}")
        holder = _holder(value)
        if holder == task_id:
            return place, True, None
        if free is None and (
            value is None
            or (holder is not None and _is_over(v, holder))
            or not v.holds("an object has so many places")
        ):
            free = place
        if n == 0:
            first = value and value.partition(":")[2]
    return free, False, first


def let_out(v: View, task_id: str, due_in_ms: float) -> bool:
    """Put the message of what waits no more into its list; False if it is to be sent otherwise."""
    name = f"task:{task_id}"
    task: Task = v.get(name)
    if not task.list or v.still_stopping(name):
        return False
    task = v.get(name)
    v.put(
        name,
        task._replace(
            state="queued", waiting_for="", list="", unsent=False, resends=0, due=v.now + due_in_ms
        ),
    )
    return True


def let_in(v: View, object_key: str, before: str = "", places: str = "") -> str:
    """Give the free places of an object to whoever stands in its line, as far as the task
    *before*; return who stands there first from then on.  *places*: how many there are by now, else
    as many as the first says.
    """
    line = f"waiting:object {object_key}"
    while (task_id := v.first(line)) and task_id != before:
        name = f"task:{task_id}"
        task: Task | None = v.get(name)
        if task is not None and task.waiting_for == line[8:]:
            if task.revoked:
                v.look_by(name, v.now)
            else:
                known = task.places if task.own_places else places or task.places or "1"
                places = places if task.own_places else known
                task = task._replace(places=known)
                v.put(name, task)
                if not _is_let_in(v, object_key, task_id, task):
                    return task_id
        v.leave(line, task_id)
    return task_id


def _is_let_in(v: View, object_key: str, task_id: str, task: Task) -> bool:
    name, due_in_ms = f"task:{task_id}", float(task.look_ms or 60_000)
    place, _, _ = free_place(v, object_key, int(task.places or 1), task_id)
    if place is None:
        kept = kept_ms(v, object_key)
        v.look_by(name, v.now + (due_in_ms if kept is None else min(kept, due_in_ms)))
        return False
    if task.reserved.startswith(f"{task.epoch} "):
        lapses = task.reserved.rpartition(" ")[2]
        task = task._replace(reserved=f"{task.epoch} {v.now} {lapses}")
    v.put(f"lock:{place}", Lock(f"0:{task_id}"))
    task = task._replace(object=place, waiting_for="", places="", look_ms="", own_places=False)
    v.put(name, task)
    if not let_out(v, task_id, due_in_ms):
        v.wait_until(task_id, v.now)
        v.put(name, v.get(name)._replace(due=float(v.now), waiting_for="time"))
    return True


def leave(v: View, task_id: str, reason: str) -> None:
    """A task waits for nothing any more; *reason*: for what it did."""
    v.leave("later", task_id)
    kind, _, object_key = reason.partition(" ")
    if reason == "workers":
        v.drop_pair("waiting:workers", task_id)
    elif reason and v.leave(f"waiting:{reason}", task_id) and kind == "object":
        let_in(v, object_key)


def place_for(
    v: View, task_id: str, object_key: str, places: int, turn: float, *, is_own: bool
) -> tuple[str | None, str]:
    """Return the place that a task has or may have, or None and who is in its way."""
    place, is_own, holder = free_place(v, object_key, places, task_id)
    line = f"waiting:object {object_key}"
    if not is_own and v.get(line) and v.holds("who came first has the place"):
        v.stand(line, task_id, turn)
        first = let_in(v, object_key, task_id, "" if is_own else str(places))
        v.leave(line, task_id)
        if first != task_id:
            return None, first
        place, is_own, holder = free_place(v, object_key, places, task_id)
    return place, "" if place else holder or ""


def stand_for(
    v: View, task_id: str, object_key: str, turn: float, places: str, due_in_ms: float, queue: str
) -> None:
    """A task stands in the line of an object from now on."""
    line, name = f"waiting:object {object_key}", f"task:{task_id}"
    v.stand(line, task_id, turn)
    wait = due_in_ms * (1 if v.first(line) == task_id else 64)
    kept = kept_ms(v, object_key)
    task: Task = v.get(name)
    v.put(
        name,
        task._replace(
            state="waiting", waiting_for=f"object {object_key}", places=places, list=queue,
            look_ms=f"{due_in_ms:.0f}", object="", unsent=False, resends=0,
            due=v.now + (wait if kept is None else min(wait, kept)),
        ),
    )  # fmt: skip


def free(v: View, task_id: str, place: str, places: str = "") -> None:
    """Free the place that a task has, never another's and none that is kept, and let in who stands
    there first.
    """
    if not place or not v.holds("who ends a task frees its object"):
        return
    holder = _holder(v.expiring(f"lock:{place}"))
    if holder is None or (holder != task_id and v.holds("only the holder frees an object")):
        return
    v.put(f"lock:{place}", None)
    if v.holds("who frees a place lets in who stands first"):
        let_in(v, place.partition("#")[0], "", places)


def _unlock(v: View) -> Reply:
    attempt, place = int(v.arg("attempt")), v.arg("object")
    value = v.expiring(f"lock:{place}")
    if value is None or (
        value != f"{attempt}:{v.arg('id')}" and v.holds("an attempt frees what is its own")
    ):
        return ("not_held",)
    task = v.task()
    is_another = task is not None and (
        (task.token != "" and task.token != v.arg("token")) or (task.attempt or 0) < attempt
    )
    if is_another and v.holds("an attempt frees what is its own"):
        return ("not_held",)
    if task is not None and task.object == place:
        v.put(v.key("record"), task._replace(object=""))
    v.put(f"lock:{place}", None)
    if v.holds("who frees a place lets in who stands first"):
        let_in(v, place.partition("#")[0])
    return ("unlocked",)


def _place(v: View) -> Reply:
    task_id, token, object_key = v.arg("id"), v.arg("token"), v.arg("object")
    name, task = v.key("record"), v.task()
    attempt = v.arg("attempt") or str(task.attempt if task is not None else "")
    is_his = task is not None and (task.state, str(task.attempt), task.token) == (
        "running", attempt, token,
    )  # fmt: skip
    if task is None or not is_his:
        stands = task is not None
        stands = stands and task.waiting_for == f"object {object_key}"  # type: ignore[union-attr]
        if stands and f" {token} " in task.spent:  # type: ignore[union-attr]
            return ("standing", "")
        return ("not_current",)
    turn = turn_of(v.now if task.published_ms is None else task.published_ms, task.epoch)
    place: str | None = task.object
    own = v.arg("is_own") == "1"
    before = ""
    is_own = task.object.partition("#")[0] == object_key
    if not is_own or _holder(v.expiring(f"lock:{place}")) != task_id:
        place, before = place_for(v, task_id, object_key, int(v.arg("places")), turn, is_own=own)
    if place:
        v.put(f"lock:{place}", Lock(f"{attempt}:{task_id}"))
        v.put(name, v.get(name)._replace(object=place))
        if not own:
            let_in(v, object_key, "", v.arg("places"))
        return ("placed", place)
    if v.arg("stands") == "":
        return ("full", before)
    v.drop_pair(v.key("claims"), task_id)
    task = v.get(name).unowned()._replace(attempt=int(attempt) - 1, spent=spend(task.spent, token))
    v.put(name, task)
    stand_for(v, task_id, object_key, turn, v.arg("places"), v.number("due_in_ms"), v.arg("list"))
    v.put(name, v.get(name)._replace(own_places=own))
    if task.revoked:
        v.put(name, v.get(name)._replace(due=float(v.now)))
    return ("standing", before)


def object_rules() -> dict[str, object]:
    """Return the rules of this module, by script."""
    return {"unlock": _unlock, "place": _place}

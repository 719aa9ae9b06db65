"""Rules of objects: their locks, their places, and the line of those that wait for one."""

from __future__ import annotations

import re

from proof.model.state import ANY, Lock, Reply, Task, View

__all__ = ["free_object", "is_over", "object_rules", "spend"]

_HELD = re.compile(r"^\d+:(.*)$", re.DOTALL)
_NUMBER = re.compile(r"-(\d+)$")


def free_object(v: View, lock: str, task_id: str, object_key: str) -> None:
    """Free the lock that this task holds; never another's, and never one that is kept."""
    if not object_key or not v.holds("who ends a task frees its object"):
        return
    held = _HELD.match(v.expiring(lock) or "")
    if held and (held[1] == task_id or not v.holds("only the holder frees an object")):
        v.put(lock, None)


def spend(task: Task, token: str) -> str:
    """Return the tokens of attempts that are over; a late copy of their claims begins nothing."""
    return f"{task.spent or ' '}{token} "[-200:]


def is_over(v: View, value: str, record: str) -> str | None:
    """Tell whether the task that holds a lock has ended: None, or by which worker it is still to be
    stopped, "" for none.
    """
    holder: Task | None = v.get(record)
    if holder is None:
        return ""
    if holder.state == "dead" or holder.called_off:
        return holder.stopping_on if v.holds("what is to be stopped has its object") else ""
    return None


def _unlock(v: View) -> Reply:
    attempt = int(v.arg("attempt"))
    value = v.expiring(v.key("lock"))
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
    v.put(v.key("lock"), None)
    if task is not None and task.object == v.arg("object"):
        v.put(v.key("record"), task._replace(object=""))
    return ("unlocked",)


def _rely(v: View) -> Reply:
    task = v.task()
    if task is None or task.called_off:
        return ("gone",)
    if task.state == "dead":
        return ("dead",)
    if task.state == "running" and task.concluding == task.token and v.arg("waited") == "":
        return ("concluding",)
    v.put(v.key("record"), task._replace(relied=True))
    return ("exists", task.state)


def _first_of(v: View, line: str, *, before: tuple[float, bytes] | None = None) -> list[str]:
    """Return who stands in a line, in its order, and strike off what has ended before them."""
    stands: list[str] = []
    entries = list(v.get(line, ()))
    for score, one in list(entries):
        if before is not None and (one.encode() == before[1] or (score, one.encode()) >= before):
            break
        holder: Task | None = v.get(f"task:{one}")
        if holder is not None and holder.due is not None:
            stands.append(one)
        elif not stands:
            entries.remove((score, one))
            v.put(line, tuple(entries) or None)
    return stands


def _call_up(v: View) -> Reply:
    before = len(v.get(v.key("line"), ()))
    first = _first_of(v, v.key("line"))[:1]
    if not first:
        return ("nobody",)
    is_new_first = len(v.get(v.key("line"), ())) < before
    lock: Lock | None = v.get(v.key("lock"))
    due = float(v.now)
    if v.expiring(v.key("lock")) is not None:
        if lock is not None and lock.until_ms is not None:
            due = lock.until_ms
        elif not is_new_first:
            return ("nobody",)
    _look_by(v, first[0], due)
    return ("next", first[0]) if due == v.now else ("nobody",)


def _look_by(v: View, task_id: str, due: float) -> None:
    task: Task | None = v.get(f"task:{task_id}")
    if task is not None and task.due is not None:
        v.put(f"task:{task_id}", task._replace(due=min(task.due, due)))


def _place(v: View) -> Reply:  # noqa: C901
    task_id, attempt, token, object_key = (
        v.arg("id"),
        v.arg("attempt"),
        v.arg("token"),
        v.arg("object"),
    )
    is_attempt, is_new, is_sent = attempt != "0", v.arg("is_new") == "1", v.arg("is_sent") == "1"
    waits_for, line = f"object {object_key}", v.key("line")
    asked, locks = v.args("seen"), v.keys("places")
    places = len(asked) // 2
    name = v.key("record")
    if not task_id:
        task_id = next(iter(_first_of(v, line)), "")
        name = f"task:{task_id}"
    task: Task | None = v.get(name)
    if attempt == "" and task is not None:
        attempt = str(task.attempt)
    if task is not None and is_attempt:
        is_his = (task.state, str(task.attempt), task.token) == ("running", attempt, token)
    elif task is not None:
        is_his = task.state == "parked" and task.epoch == token
        is_his = is_his and (is_new or task.waiting_for == waits_for)
        if v.arg("id") == "":
            is_his = (
                task.state == "parked" and task.waiting_for == waits_for
                and bool(task.list) and task.list == v.key("queue") and not task.suspect
                and task.places == str(places)
            )  # fmt: skip
        if is_new and task.state == "queued" and task.epoch == token:
            return ("sent",) if is_sent else ("send", ANY, ANY, ANY)
    else:
        is_his = False
    if task is None or not is_his:
        stands = task is not None and task.state == "parked" and task.waiting_for == waits_for
        if is_attempt and stands and f" {token} " in task.spent:  # type: ignore[union-attr]
            return ("standing", "")
        if not is_attempt and not stands:
            v.leave(line, task_id)
        return ("not_current",)

    own, mine, named = task.object, "", ""
    beyond = own[len(object_key) + 1 :] if own.startswith(object_key + "#") else ""
    if is_attempt and beyond.isdigit() and int(beyond) > places:
        if len(locks) == 2 * places:
            return ("own_place", own)
        last = locks[-1]
        if (held := _HELD.match(v.expiring(last) or "")) and held[1] == task_id:
            mine, named = last, own
    free: list[tuple[str, str]] = []
    values: list[str] = []
    for n in range(0, 2 * places, 2):
        lock, record, slot, seen = *locks[n : n + 2], *asked[n : n + 2]
        value = v.expiring(lock)
        over = None
        if value and value == seen and not value.startswith("kept:"):
            over = is_over(v, value, record)
            if over:
                return ("still_stopping", value.partition(":")[2], over)
        values.append(value or "")
        if value is None or over is not None or not v.holds("an object has so many places"):
            free.append((lock, slot))
        else:
            number, _, holder = value.partition(":")
            if holder == task_id and number != "kept":
                mine, named = lock, slot
    found = _NUMBER.search(task.epoch)
    published = v.now if task.published_ms is None else task.published_ms
    score = published + (int(found[1]) if found else 0) % 4096 / 4096
    ahead: list[str] = []
    if not mine:
        ahead = _first_of(v, line, before=(score, task_id.encode()))
        ahead = ahead[: max(len(free), 1)]
    fits = bool(mine) or len(ahead) < len(free)
    if mine == "" and len(ahead) < len(free):
        mine, named = free[0]
    if not mine and free and not v.holds("who came first has the place"):
        fits, (mine, named) = True, free[0]
    if fits and (is_attempt or not task.revoked):
        v.put(mine, Lock(f"{attempt}:{task_id}"))
        v.leave(line, task_id)
        task = task._replace(
            waiting_for="", places="", list="", unsent=False, resends=0, object=named
        )
        v.put(name, task)
        stands = v.get(line, ())
        next_one = stands[0][1] if stands else ""
        if next_one:
            _look_by(v, next_one, v.now + (0 if len(free) > 1 else v.number("due_in_ms")))
        if is_attempt:
            return ("placed", named)
        if task.reserved.startswith(f"{task.epoch} "):
            lapses = task.reserved.rpartition(" ")[2]
            task = task._replace(reserved=f"{task.epoch} {v.now} {lapses}")
        v.put(name, task._replace(state="queued", due=v.now + v.number("due_in_ms")))
        return ("sent",) if is_sent else ("send", ANY, ANY, ANY)
    if not is_new:
        return ("full", "\n".join(values), "\n".join(ahead))
    if is_attempt:
        v.drop_pair(v.key("claims"), task_id)
        task = task.unowned()._replace(
            state="parked", attempt=int(attempt) - 1, spent=spend(task, token)
        )
        if task.next_epoch:
            task = task._replace(epoch=task.next_epoch, moved="", next_epoch="")
            is_sent = False
    v.stand(line, task_id, score)
    in_line = v.get(line)
    wait = v.number("due_in_ms") * (1 if in_line[0][1] == task_id else 64)
    kept: Lock | None = v.get(locks[0]) if v.expiring(locks[0]) is not None else None
    if kept is not None and kept.until_ms is not None:
        wait = min(wait, max(kept.until_ms - v.server_ms, 0))
    if task.revoked:
        wait = 0
    v.put(
        name,
        task._replace(
            waiting_for=waits_for, places=str(places), object=object_key,
            list=v.key("queue") if is_sent else "", due=v.now + wait,
        ),
    )  # fmt: skip
    return ("standing", ANY)


def object_rules() -> dict[str, object]:
    """Return the rules of this module, by script."""
    return {
        "unlock": _unlock, "rely": _rely, "place": _place, "call_up": _call_up,
    }  # fmt: skip

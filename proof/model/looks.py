"""Rules of the sweeper's looks: what is due, sent again, put off; and of moments."""

from __future__ import annotations

import math

from proof.model.objects import leave, let_in, let_out, turn_of
from proof.model.state import ANY, Lock, Reply, Task, View

__all__ = ["look_rules"]


def _is_seen(v: View, due: float | None) -> bool:
    """Tell whether what is due is due at the time that was seen."""
    return due is not None and due == float(v.arg("due_ms"))


def _due(v: View) -> Reply:
    # Which of those at the same time come first is the order of their names.
    found = sorted((t.due, one.encode()) for one, t in v.tasks() if t.due is not None)
    ripe = [(one.decode(), due) for due, one in found if due <= v.now][: int(v.number("limit"))]
    if v.expiring("waker") is not None:
        ripe = [one for one in ripe if one[::-1] not in v.get("later", ())]
    return ("batch", ANY, *(item for one, due in ripe for item in (one, due)))


def _resend(v: View) -> Reply:
    task = v.task()
    if task is None or task.state not in ("queued", "waiting") or task.is_bound:
        return ("changed",)
    if not _is_seen(v, task.due):
        return ("changed",)
    if stopping_on := v.still_stopping(v.key("record")):
        return ("held", stopping_on)
    task = v.get(v.key("record"))
    kind, _, object_key = task.waiting_for.partition(" ")
    if kind == "object" and v.arg("is_expired") == "":
        return _in_line(v, task, object_key)
    if v.arg("message") and task.epoch != v.arg("epoch"):
        return ("changed",)
    leave(v, v.arg("id"), task.waiting_for)
    if v.arg("message"):
        task = task._replace(message=v.arg("message"), epoch=v.arg("next"))
    due = v.now + v.number("due_in_ms") * min(2 ** max(task.resends, 0), 64)
    v.put(
        v.key("record"),
        task._replace(
            state="queued", resends=task.resends + 1, unsent=False, waiting_for="", places="",
            own_places=False, look_ms="", due=due, used=task.used or v.arg("stored") != "",
        ),
    )  # fmt: skip
    return ("send", task.message, due)


def _in_line(v: View, task: Task, object_key: str) -> Reply:
    """Look at a task that stands in a line: its turn may have come."""
    task_id, name, line = v.arg("id"), v.key("record"), f"waiting:{task.waiting_for}"
    if task_id not in (one for _, one in v.get(line, ())):
        published_ms = v.now if task.published_ms is None else task.published_ms
        v.stand(line, task_id, turn_of(published_ms, task.epoch))
    v.put(name, v.get(name)._replace(due=v.now + v.number("due_in_ms") * 64))
    # The first of the line is looked at sooner.
    first = let_in(v, object_key, "", v.arg("places"))
    return ("standing", first if first != task_id else "")


def _postpone(v: View) -> Reply:
    task = v.task()
    if task is None:
        # Something may stand in the index without a record.
        return v.either(("changed",), ("gone",))
    if not _is_seen(v, task.due):
        return ("changed",)
    if v.arg("is_unsent") == "1":
        task = task._replace(unsent=True, resends=0)
    v.put(v.key("record"), task._replace(due=v.now + v.number("due_in_ms")))
    return ("postponed",)


def _divert(v: View) -> Reply:
    task = v.task()
    if v.arg("is_waiting") == "1":
        if task is None or task.waiting_for != "workers":
            v.drop_pair("waiting:workers", v.arg("id"))
            return ("changed",)
        due = float(v.now) if task.due is None else min(task.due, v.now)
        v.put(v.key("record"), task._replace(due=due))
        return ("diverted",)
    if task is None:
        return ("absent",)
    if task.state != "queued" or task.epoch != v.arg("epoch"):
        return ("changed",)
    if task.unsent and (math.inf if task.due is None else task.due) <= v.now:
        return ("diverted",)
    v.put(v.key("record"), task._replace(resends=0, unsent=True, due=v.now))
    return ("diverted",)


def _unlist(v: View) -> Reply:
    queues = v.pairs("direct")
    if v.arg("queue") not in queues or float(queues[v.arg("queue")]) != v.number("registered_ms"):
        return ("changed",)
    v.drop_pair("direct", v.arg("queue"))
    return ("unlisted",)


def _wait_for_worker(v: View, task: Task | None) -> Reply:
    if task is None or task.state not in ("queued", "waiting") or task.is_bound:
        return ("changed",)
    if task.due is None:
        return ("changed",)
    if task.due != float(v.arg("epoch")):
        return ("changed",)
    leave(v, v.arg("id"), task.waiting_for)
    waiting = v.pairs("waiting:workers") | {v.arg("id"): v.arg("named")}
    v.put_pairs("waiting:workers", waiting)
    due = v.now + v.number("in_ms")
    task = v.get(v.key("record"))._replace(
        state="waiting", waiting_for=v.arg("waits_for"), resends=0, unsent=False, list="", due=due
    )
    v.put(v.key("record"), task)
    return ("waits_until", due)


def _wait(v: View) -> Reply:  # noqa: C901
    task = v.task()
    if v.arg("named"):
        return _wait_for_worker(v, task)
    waits_for = v.arg("waits_for")
    if task is None or task.epoch != v.arg("epoch"):
        return ("free",)
    if task.due is not None and task.waiting_for == waits_for:
        return ("waits_until", task.due)
    if task.state != "queued" or v.still_stopping(v.key("record")) or task.revoked:
        return ("free",)
    task = v.get(v.key("record"))
    if v.arg("in_ms"):
        return _waits(v, task, waits_for, v.now + v.number("in_ms"))
    epoch, reserved_ms, lapses = (task.reserved or "  ").rsplit(" ", 2)
    each = int(v.number("interval_us"))
    lapsed = 0
    if reserved_ms and epoch == v.arg("epoch"):
        if v.now_us - int(reserved_ms) * 1000 <= max(3 * each, 2_000_000) * 2 ** int(lapses):
            return ("free",)
        lapsed = int(lapses) + 1
    noted = (v.expiring(v.key("rate")) or f"0 0 {each}").split(" ")
    given, moment, interval = (int(n) for n in noted)
    if interval > each:
        moment = math.floor(given + (moment - given) * each / interval)
    if given > v.now_us:
        moment += v.now_us - given
    moment = max(moment, v.now_us)
    following = moment + each
    until = v.server_ms + math.ceil((following - v.now_us) / 1000) + 1000
    v.put(v.key("rate"), Lock(f"{v.now_us} {following} {each}", until))
    due = math.ceil(moment / 1000)
    task = task._replace(reserved=f"{v.arg('epoch')} {due} {lapsed}")
    if moment == v.now_us:
        v.put(v.key("record"), task)
        return ("free",)
    return _waits(v, task, waits_for, due)


def _waits(v: View, task: Task, waits_for: str, due: float) -> Reply:
    v.put(
        v.key("record"),
        task._replace(
            state="waiting", waiting_for=waits_for, resends=0, unsent=False, due=due,
            list=v.arg("list"),
        ),
    )  # fmt: skip
    v.wait_until(v.arg("id"), due)
    return ("waits_until", due)


def _wake(v: View) -> Reply:
    waker = v.expiring(v.key("waker"))
    lease: Lock | None = v.get(v.key("waker"))
    until = lease.until_ms if lease is not None and lease.until_ms is not None else 0
    if waker not in (None, v.arg("who")) and until - v.server_ms <= v.number("lease_ms") + 1:
        return ("another", ANY)
    found = [one for one in v.get("later", ()) if one[0] <= v.now][: int(v.number("limit"))]
    told: list[object] = []
    for due, task_id in found:
        v.leave("later", task_id)
        task: Task | None = v.get(f"task:{task_id}")
        if task is None or task.due != due:
            continue
        if not task.waiting_for or task.revoked:
            continue
        if not let_out(v, task_id, v.number("due_in_ms")):
            told += [task_id, due]
    v.put(v.key("waker"), Lock(v.arg("who"), v.server_ms + v.number("lease_ms")))
    next_one = next(iter(v.get("later", ())), (math.inf, ""))
    return ("woken", max(0, min(next_one[0] - v.now, v.number("lease_ms") // 2)), *told)


def look_rules() -> dict[str, object]:
    """Return the rules of this module, by script."""
    return {
        "due": _due, "resend": _resend, "postpone": _postpone, "divert": _divert,
        "unlist": _unlist, "wait": _wait, "wake": _wake,
    }  # fmt: skip

"""Rules of operators' orders, of runs on many workers, and of what is noted for people."""

from __future__ import annotations

import json

from proof.model.attempts import in_force
from proof.model.state import Reply, Task, View

__all__ = ["operator_rules"]


def _order(v: View) -> Reply:
    orders = v.pairs("orders")
    if v.arg("id") in orders:
        return ("ordered",)
    if orders.get("version", "0") != v.arg("version"):
        return ("changed",)
    until = v.now + v.number("for_ms") if v.number("for_ms") > 0 else 0
    version = str(max(v.now, int(orders.get("version", "0")) + 1))
    given = json.dumps({"kind": v.arg("kind"), "target": v.arg("target"), "until_ms": until})
    v.put_pairs("orders", orders | {v.arg("id"): given, "version": version})
    return ("ordered",)


def _resume(v: View) -> Reply:
    orders, limit = v.pairs("orders"), int(v.number("limit"))
    if v.arg("id") not in orders:
        return ("gone",)
    order = json.loads(orders[v.arg("id")])
    if not order.get("ended_ms"):
        if v.arg("by") == "" and in_force(order, v.now):
            return ("in_force",)
        order |= {"ended_ms": v.now, "released": 0}
        orders["version"] = str(max(v.now, int(orders.get("version", "0")) + 1))
    line = f"waiting:order {v.arg('id')}"
    ids = [one for _, one in v.get(line, ())][:limit]
    for task_id in ids:
        order["released"] += 1
        v.leave(line, task_id)
        name = f"task:{task_id}"
        task: Task | None = v.get(name)
        if task is not None and task.waiting_for == line[8:]:
            due = round(order["ended_ms"] - 1000 + order["released"] / 1024, 4)
            v.put(name, task._replace(due=due, waiting_for="time"))
            v.wait_until(task_id, due)
    count = len(ids)
    if count < limit:
        del orders[v.arg("id")]
        v.put_pairs("orders", orders)
        return ("resumed", count, "")
    v.put_pairs("orders", orders | {v.arg("id"): json.dumps(order)})
    return ("resumed", count, "1")


def _begin_run(v: View) -> Reply:
    members = dict.fromkeys(v.args("members"), "") | v.pairs(v.key("run"))
    v.put_pairs(v.key("run"), members)
    v.put_pairs("runs", v.pairs("runs") | {v.arg("id"): str(v.now + v.number("due_in_ms"))})
    return ("begun_run",)


def _assign(v: View) -> Reply:
    members, member = v.pairs(v.key("run")), v.arg("member")
    if member not in members:
        # What has ended expires.
        return ("absent",)
    if v.arg("is_confirmed"):
        worker = v.arg("workers")
        v.put_pairs(v.key("run"), members | {member: worker})
        return ("assigned", worker)
    others = {name for one, had in members.items() if one != member for name in had.split("\n")}
    if v.arg("run") not in v.pairs("runs"):
        # Its members had no records when it was looked at; now one is published.
        v.put_pairs("runs", v.pairs("runs") | {v.arg("run"): str(v.now)})
    for name in v.args("workers"):
        if name not in others or not v.holds("each member of a run has its own worker"):
            before = [one for one in members[member].split("\n") if one not in ("", name)]
            v.put_pairs(v.key("run"), members | {member: "\n".join([name, *before])})
            return ("assigned", name)
    return ("waits",)


def _end_run(v: View) -> Reply:
    runs = v.pairs("runs")
    if v.arg("id") not in runs or float(runs[v.arg("id")]) != v.number("due_ms"):
        return ("changed",)
    if v.arg("keep_ms"):
        v.drop_pair("runs", v.arg("id"))
        return ("ended",)
    v.put_pairs("runs", runs | {v.arg("id"): str(v.now + v.number("due_in_ms"))})
    return ("postponed",)


def operator_rules() -> dict[str, object]:
    """Return the rules of this module, by script."""
    return {
        "order": _order, "resume": _resume, "begin_run": _begin_run, "assign": _assign,
        "end_run": _end_run,
        # What is for people decides nothing.
        "note": lambda v: ("noted",), "audit": lambda v: ("audited",),
    }  # fmt: skip

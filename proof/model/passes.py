"""Rules of passes of the sweeper: who begins one, grace, generations, looking ahead; of the clock.

Figures of these replies are for the sweeper's arithmetic.  Where they cannot make a task be lost or
run twice, they are not compared.
"""

from __future__ import annotations

from proof.model.publications import DAY_MS
from proof.model.state import ANY, Lock, Reply, View

__all__ = ["pass_rules"]


def _begin_pass(v: View) -> Reply:
    meta = v.meta()
    noted = str(meta.get("format") or "1")
    if (int(noted) if noted.isdigit() else 1) > v.number("format"):
        return ("newer", ANY)
    generation = meta.get("generation")
    if generation is not None and float(generation) > v.now + DAY_MS:
        generation = None
    passed, grace = meta.get("passed_ms", 0), meta.get("grace_ms", 0)
    is_other = meta.get("run_id") is not None and meta["run_id"] != v.call.run_id
    latest = max(passed, meta.get("latest_ms", 0))
    is_back = latest - v.now > v.number("ttl_ms")
    if v.now - passed < v.number("interval_ms") and not is_other and not is_back:
        return ("not_due", ANY, ANY)
    running = v.expiring(v.key("pass"))
    if running is not None:
        lock: Lock = v.get(v.key("pass"))
        left = (lock.until_ms or 0) - v.now
        if left <= v.number("ttl_ms"):
            return ("busy",)
    v.put(v.key("pass"), Lock(v.arg("nonce"), v.now + v.number("ttl_ms")))
    if (is_other or generation is None) and v.holds("a restart begins a generation"):
        began = str(max(v.now, int(float(generation or 0)) + 1))
        v.note_meta(generation=began, run_id=v.call.run_id)
    unseen = meta.get("unseen_step")
    if is_back:
        v.note_meta(behind_ms=meta.get("behind_ms", 0) + latest - v.now, behind_from_ms=v.now)
    if is_other or is_back or unseen or v.now - passed > v.number("interruption_ms"):
        if grace <= v.now or grace > v.now + v.number("lease_ms") or unseen:
            grace = v.now + v.number("lease_ms")
        v.note_meta(interrupted_ms=v.now)
    v.note_meta(
        unseen_step=None, latest_ms=None, passed_ms=v.now, passed_by=v.arg("nonce"), grace_ms=grace
    )
    return ("begun", grace, ANY, ANY, ANY, ANY, ANY, ANY, ANY)


def _end_pass(v: View) -> Reply:
    meta = v.meta()
    if meta.get("passed_by") in (None, v.arg("nonce")):
        v.note_meta(passed_ms=float(v.arg("ended_ms")) if v.arg("ended_ms") else v.now)
    if v.expiring(v.key("pass")) != v.arg("nonce"):
        return ("overtaken",)
    v.put(v.key("pass"), None)
    return ("ended",)


def _look_ahead(v: View) -> Reply:
    return ("asked", ANY)


def _recognize(v: View) -> Reply:
    before = v.meta().get("broker")
    v.note_meta(broker=v.arg("broker"))
    return ("known",) if before in (None, v.arg("broker")) else ("asked", 0)


def _set_back(v: View) -> Reply:
    meta = v.meta()
    if not meta.get("behind_ms"):
        return ("ended",)
    late = sorted(
        (task.due, one.encode())
        for one, task in v.tasks()
        if task.due is not None and task.due >= meta["behind_from_ms"]
    )[: int(v.number("limit"))]  # fmt: skip
    for due, name in late:
        one = f"task:{name.decode()}"
        v.put(one, v.get(one)._replace(due=due - meta["behind_ms"]))
    if len(late) < v.number("limit"):
        v.note_meta(behind_ms=None, behind_from_ms=None)
        return ("ended",)
    v.note_meta(behind_from_ms=late[-1][0])
    return ("set_back", len(late))


def pass_rules() -> dict[str, object]:
    """Return the rules of this module, by script."""
    return {
        "begin_pass": _begin_pass, "end_pass": _end_pass, "look_ahead": _look_ahead,
        "recognize": _recognize, "set_back": _set_back,
    }  # fmt: skip

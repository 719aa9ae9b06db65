"""Rules of passes of the sweeper: who begins one, grace, generations, looking ahead; of the clock.

Figures of these replies are for the sweeper's arithmetic.  Where they cannot make a task be lost or
run twice, they are not compared.
"""

from __future__ import annotations

from proof.model.publications import DAY_MS
from proof.model.state import ANY, REST, Lock, Reply, View

__all__ = ["pass_rules"]


def _begin_pass(v: View) -> Reply:
    meta = v.meta()
    noted = str(meta.get("format") or "1")
    if (int(noted) if noted.isdigit() else 1) > v.number("format"):
        return ("newer", ANY)
    v.keep_clock()
    generation = meta.get("generation")
    if generation is not None and float(generation) > v.now + DAY_MS:
        generation = None
    passed, grace = meta.get("passed_ms", 0), meta.get("grace_ms", 0)
    is_other = meta.get("run_id") is not None and meta["run_id"] != v.call.run_id
    if v.now - passed < v.number("interval_ms") and not is_other:
        return ("not_due", ANY, ANY)
    running = v.expiring(v.key("pass"))
    if running is not None:
        lock: Lock = v.get(v.key("pass"))
        left = (lock.until_ms or 0) - v.server_ms
        if left <= v.number("ttl_ms"):
            return ("busy",)
    v.put(v.key("pass"), Lock(v.arg("nonce"), v.server_ms + v.number("ttl_ms")))
    if (is_other or generation is None) and v.holds("a restart begins a generation"):
        began = str(max(v.now, int(float(generation or 0)) + 1))
        v.note_meta(generation=began, run_id=v.call.run_id)
    if is_other or v.now - passed > v.number("interruption_ms"):
        if grace <= v.now:
            grace = v.now + v.number("lease_ms")
        v.note_meta(interrupted_ms=v.now)
    v.note_meta(passed_ms=v.now, passed_by=v.arg("nonce"), grace_ms=grace)
    return ("begun", grace, REST)


def _end_pass(v: View) -> Reply:
    meta = v.meta()
    if meta.get("passed_by") in (None, v.arg("nonce")):
        v.note_meta(passed_ms=min(v.now, float(v.arg("ended_ms") or v.now)))
    if v.expiring(v.key("pass")) != v.arg("nonce"):
        return ("overtaken",)
    v.put(v.key("pass"), None)
    return ("ended",)


def _look_ahead(v: View) -> Reply:
    broker, before = v.arg("broker"), v.meta().get("broker")
    v.note_meta(broker=broker)
    return ("known",) if before in (None, broker) else ("asked",)


def pass_rules() -> dict[str, object]:
    """Return the rules of this module, by script."""
    return {
        "begin_pass": _begin_pass, "end_pass": _end_pass, "look_ahead": _look_ahead,
    }  # fmt: skip

"""Rules of what ends without running: called off, discarded; and of dead letters that are read."""

from __future__ import annotations

from proof.model.objects import free, leave
from proof.model.state import Reply, Task, View

__all__ = ["ending_rules"]


def _call_off(v: View, due_in_ms: float) -> None:
    """End a task that nobody runs, but for an attempt of it that is still to be stopped."""
    is_stopping = v.still_stopping(v.key("record"))
    task: Task = v.get(v.key("record"))
    if not is_stopping:
        v.put(v.key("record"), None)
        free(v, v.arg("id"), task.object)
        return
    left = Task(
        "waiting", message=task.message, name=task.name, published_as=task.published_as,
        attempt=task.attempt, max_losses=task.max_losses,
        due=v.now + due_in_ms, spent=task.spent, stopping=task.stopping,
        stopping_on=task.stopping_on, waiting_for="stop", object=task.object,
        reserved=task.reserved, used=task.used,
        published_ms=task.published_ms, list=task.list,
    )  # fmt: skip
    v.put(v.key("record"), left)


def _cancel(v: View) -> Reply:  # noqa: C901
    task, is_letter = v.task(), v.arg("is_letter") == "1"
    if task is None or (task.called_off and (is_letter or v.still_stopping(v.key("record")))):
        return ("gone",)
    if task.state == "dead" and not is_letter:
        return ("dead",)
    if is_letter:
        if task.state != "dead" or v.arg("seen") not in ("", task.buried_ms):
            return ("stale",)
    else:
        named = "stop" if task.called_off else task.epoch
        if named != v.arg("seen") and v.holds("who calls off names the publication"):
            return ("stale",)
        is_claimed = task.attempt is not None
        if (
            v.arg("is_unsent") == "1"
            and is_claimed
            and v.holds("only what nobody has claimed is taken back")
        ):
            return ("stale",)
    if task.state == "running" and v.holds("what runs is not called off"):
        how = v.arg("if_running")
        if how:
            v.put(v.key("record"), task._replace(revoked=True))
        if how in ("stop", "kill"):
            stops = f"stops:{task.owner}"
            told = f"{task.attempt} {how} {task.token}"
            v.put_pairs(stops, v.pairs(stops) | {v.arg("id"): told})
        return ("running", task.owner)
    if task.has_history and not v.args("outcome"):
        return ("troubled",)
    if v.arg("is_surplus") == "1":
        v.note_meta(trimmed=v.meta().get("trimmed", 0) + 1, trimmed_ms=v.now)
    if not is_letter:
        leave(v, v.arg("id"), task.waiting_for)
    _call_off(v, v.number("due_in_ms"))
    return ("cancelled",)


def _announce(v: View) -> Reply:
    task = v.task()
    if task is None or task.state != "dead" or task.buried_ms != v.arg("buried_ms"):
        return ("changed",)
    reader = v.arg("reader")
    if reader and task.due is None:
        # Celery has been told.
        return ("changed",)
    if not reader:
        v.put(v.key("record"), task._replace(due=None, sealed=False, read_by=""))
        return ("announced",)
    if v.arg("is_over") == "1":
        if task.read_by == reader:
            v.put(v.key("record"), task._replace(read_by=""))
        return ("opened",)
    if task.sealed or task.read_by not in ("", reader):
        v.put(v.key("record"), task._replace(sealed=True, read_by=""))
        return ("sealed",)
    v.put(v.key("record"), task._replace(read_by=reader))
    return ("opening",)


def _ended(v: View) -> Reply:
    task = v.task()
    if task is not None and not task.called_off:
        return ("exists", task.state)
    if not v.holds("what was here and is absent has ended"):
        return ("unrecorded",)
    if v.arg("number"):
        last = (v.expiring(v.key("sent")) or "").split(" ")[0].rsplit("-", 1)
        if len(last) == 2 and last[1].isdigit() and int(last[1]) >= int(v.arg("number")):
            return ("ended",)
    meta = v.meta()
    is_of_now = meta.get("run_id") == v.call.run_id and meta.get("generation") == v.arg(
        "generation"
    )
    return ("ended",) if v.call.run_id and is_of_now else ("unrecorded",)


def ending_rules() -> dict[str, object]:
    """Return the rules of this module, by script."""
    return {"cancel": _cancel, "announce": _announce, "ended": _ended}

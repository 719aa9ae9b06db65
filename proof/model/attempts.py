"""Rules of an attempt: it begins, ends with an outcome, or gives its id to a canvas."""

from __future__ import annotations

import json
from typing import Any

from proof.model.objects import free, is_spent, let_in, spend, turn_of
from proof.model.publications import DAY_MS
from proof.model.state import Lock, Reply, Task, View, Worker

__all__ = ["attempt_rules", "drop_claim", "in_force", "is_current", "wait_alone"]


def wait_alone(v: View, task: Task, alone_ms: float) -> None:
    """The task is sent again later, as its worker may not have it beside another one."""
    # At random, by the microseconds of the clock.
    due = float(f"{v.now + alone_ms * (0.5 + v.now_us % 1000 / 1000):.0f}")
    v.wait_until(v.arg("id"), due)
    v.put(
        v.key("record"),
        task._replace(
            state="waiting", waiting_for="alone", resends=0, unsent=False, list="", due=due
        ),
    )


def is_current(task: Task | None, attempt: str, token: str) -> bool:
    """Tell whether this attempt runs, as far as the ledger knows."""
    return task is not None and (task.state, str(task.attempt), task.token) == (
        "running", attempt, token,
    )  # fmt: skip


def _has_ended(v: View) -> bool:
    """Tell whether a message without a record is a late copy: its generation had the record."""
    generation = v.arg("generation")
    if not generation or float(generation) > v.now + DAY_MS:
        return False
    meta = v.meta()
    current = meta.get("generation")
    if current is not None and float(current) > v.now + DAY_MS:
        current = None
    if current is None or not v.call.run_id or meta.get("run_id") != v.call.run_id:
        if not v.holds("a restart begins a generation"):
            return True
        current = str(max(v.now, int(float(current or 0)) + 1, int(float(generation)) + 1))
        v.note_meta(generation=current, run_id=v.call.run_id)
    return bool(current == generation) and v.holds("what was here and is absent has ended")


def _held_up(v: View, worker: Worker) -> Reply | None:
    """Return why a task does not begin though its message is the right one."""
    name = v.key("record")
    stopping_on = v.still_stopping(name)
    task: Task = v.get(name)
    if stopping_on and v.holds("what is to be stopped still runs"):
        v.look_by(name, v.now)
        return ("held", stopping_on)
    if task.revoked:
        v.look_by(name, v.now)
        return ("stale",)
    is_suspect = bool(task.suspect) and v.arg("alone_ms") != ""
    if is_suspect and v.holds("a worker runs one suspect at a time"):
        runs = v.pairs(v.key("claims"))
        if worker.suspect and runs.get(worker.suspect) == worker.suspect_claim:
            wait_alone(v, task, v.number("alone_ms"))
            return ("alone",)
    return None


def _claim(v: View) -> Reply:  # noqa: C901
    task_id, epoch, token = v.arg("id"), v.arg("epoch"), v.arg("token")
    task, worker = v.task(), v.worker(v.key("worker"))
    if task is not None and task.state == "running":
        if task.token == token and v.holds("a repeated claim is the same"):
            return ("claimed", task.attempt, task.losses, _place_of(v, task, task.attempt))
        if v.holds("what runs is not claimed"):
            return ("held", task.owner)
    if task is not None and task.state == "dead":
        return ("dead",)
    if (worker is None or worker.state != "alive") and v.holds("only who is alive claims"):
        return ("no_lease",)
    worker = worker or Worker("")
    if task is None or task.called_off:
        if _has_ended(v):
            return ("ended",)
        if v.arg("message") == "":
            return ("unrecorded",)
        stopping_on = v.still_stopping(v.key("record"))
        task = (v.task() or Task("queued"))._replace(
            epoch=epoch, message=v.arg("message"), published_ms=v.now, used=True, waiting_for="",
            name=v.arg("name"), published_as="",
            max_losses=int(v.arg("max_losses")) if v.arg("max_losses") else None,
        )  # fmt: skip
        if stopping_on:
            v.put(v.key("record"), task._replace(state="queued", due=v.now))
            return ("held", stopping_on)
    elif (task.epoch != epoch and v.holds("a message of another publication is stale")) or (
        f" {token} " in task.spent
    ):
        return ("stale",)
    elif task.state == "waiting":
        return ("alone" if task.waiting_for == "alone" else "waits",)
    elif (said := _held_up(v, worker)) is not None:
        return said
    else:
        task = v.get(v.key("record"))
    for order_id in v.args("strikes"):
        order = v.pairs("orders").get(order_id)
        if order and in_force(json.loads(order), v.now) and v.holds("what is struck waits"):
            v.put(
                v.key("record"),
                task._replace(
                    state="waiting", waiting_for=f"order {order_id}", resends=0, unsent=False,
                    due=v.now + 3_600_000, list=v.arg("list"),
                ),
            )  # fmt: skip
            turn = turn_of(task.published_ms or v.now, epoch)
            v.stand(f"waiting:order {order_id}", task_id, turn)
            return ("struck", order_id)
    attempt = (task.attempt or 0) + 1
    claim = f"{attempt} {v.arg('pid')} {token}"
    runs = v.pairs(v.key("claims")) | {task_id: claim}
    if v.holds("a claim is noted at its worker"):
        v.put_pairs(v.key("claims"), runs)
    if task.suspect and v.arg("alone_ms"):
        worker = worker._replace(suspect=task_id, suspect_claim=claim)
    if worker.state:
        v.put(v.key("worker"), worker)
    v.put(
        v.key("record"),
        task._replace(
            state="running", attempt=attempt, owner=v.arg("worker"), token=token,
            resends=0, unsent=False, stopping="", stopping_on="",
            due=v.now + v.number("time_to_run_ms") if v.number("time_to_run_ms") > 0 else None,
        ),
    )  # fmt: skip
    if place := _place_of(v, task, 0):
        v.put(f"lock:{place}", Lock(f"{attempt}:{task_id}"))
    return ("claimed", attempt, task.losses, place)


def _place_of(v: View, task: Task, attempt: int | None) -> str:
    """Return the place that a task has, if it has it as this attempt."""
    held = task.object and v.expiring(f"lock:{task.object}")
    return task.object if held == f"{attempt}:{v.arg('id')}" else ""


def in_force(order: dict[str, Any], now: int) -> bool:
    """Tell whether an order holds at this time."""
    if order.get("ended_ms"):
        return False
    return not order.get("until_ms") or now < float(order["until_ms"])


def _settle(v: View) -> Reply:
    task = v.task()
    if task is None:
        return ("gone",)
    if not is_current(task, v.arg("attempt"), v.arg("token")) and v.holds(
        "only the current attempt settles"
    ):
        return ("fenced", task.state)
    if task.has_history and not v.args("outcome"):
        return ("troubled",)
    if v.arg("value") and v.arg("db") and not v.either(True, False):
        # Which databases can be reached is the server's to say.
        return ("elsewhere",)
    v.put(v.key("record"), None)
    v.drop_pair(v.key("claims"), v.arg("id"))
    held = v.expiring(f"lock:{task.object}") if task.object and v.arg("keep_ms") != "0" else None
    number, _, holder = (held or "").partition(":")
    if number.isdigit() and holder == v.arg("id"):
        until = v.server_ms + v.number("keep_ms")
        v.put(f"lock:{task.object}", Lock(f"kept:{holder}", until))
        let_in(v, task.object.partition("#")[0], "", v.arg("places"))
    else:
        free(v, v.arg("id"), task.object, v.arg("places"))
    return ("settled",)


def _store(v: View) -> Reply:
    task = v.task()
    if task is None:
        return ("gone",)
    if v.arg("after") == "burial":
        # No attempt of a task began whose message nobody could read.
        attempt = str(task.attempt or 0)
        may = task.state == "dead" and (attempt, task.buried_ms) == (
            v.arg("attempt"),
            v.arg("token"),
        )
    elif v.arg("after"):
        may = task.state in ("queued", "waiting") and str(task.attempt) == v.arg("attempt")
    else:
        may = is_current(task, v.arg("attempt"), v.arg("token"))
    if not may:
        return ("fenced", task.state)
    if v.arg("db") and not v.either(True, False):
        # Which databases can be reached is the server's to say.
        return ("elsewhere",)
    return ("stored",)


def _touch(v: View) -> Reply:
    task = v.task()
    if task is None:
        return ("gone",)
    if not is_current(task, v.arg("attempt"), v.arg("token")):
        return ("fenced", task.state)
    if v.arg("time_to_run_ms"):
        task = task._replace(due=v.now + v.number("time_to_run_ms"))
    if v.arg("is_concluding"):
        task = task._replace(concluding="1")
    if v.arg("heir"):
        task = task._replace(heir=v.arg("heir"))
    v.put(v.key("record"), task)
    return ("touched", "1" if task.used else "")


def _replace(v: View) -> Reply:
    task, attempt, token = v.task(), v.arg("attempt"), v.arg("token")
    is_over = task is not None and task.state == "waiting" and str(task.attempt) == attempt
    if task is not None and is_over and is_spent(task, token):
        return ("waiting",)
    if task is None or (
        not is_current(task, attempt, token) and v.holds("only the current attempt is replaced")
    ):
        drop_claim(v, v.key("claims"), v.arg("id"), attempt, token)
        return ("fenced", task.state) if task else ("gone",)
    v.drop_pair(v.key("claims"), v.arg("id"))
    v.put(
        v.key("record"),
        task._replace(
            state="waiting", token="", owner="", concluding="",
            spent=spend(task.spent, token),
            waiting_for="canvas",
            used=task.used or v.arg("stored") != "",
            epoch=f"{attempt}-replaced" if v.holds("a replacement is another publication")
            else task.epoch, due=v.now + v.number("due_in_ms"),
        ),
    )  # fmt: skip
    return ("waiting",)


def drop_claim(v: View, claims: str, task_id: str, attempt: str, token: str) -> None:
    """Forget the claim of an attempt that ended another way, if it is this very one."""
    noted = v.pairs(claims).get(task_id, "").split(" ")
    if noted[0] == attempt and noted[-1] == token:
        v.drop_pair(claims, task_id)


def attempt_rules() -> dict[str, object]:
    """Return the rules of this module, by script."""
    return {
        "claim": _claim, "settle": _settle, "touch": _touch, "replace": _replace,
        "store": _store,
    }  # fmt: skip

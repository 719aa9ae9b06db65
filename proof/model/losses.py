"""Rules of attempts without an outcome: lost, released, charged with a death, buried."""

from __future__ import annotations

from proof.model.attempts import drop_claim, is_current
from proof.model.objects import free, is_spent, spend
from proof.model.state import Reply, Task, View

__all__ = ["loss_rules"]


def _already(task: Task, attempt: str, token: str) -> Reply | None:
    """Return the answer to a repeated loss."""
    if attempt == str(task.attempt) and is_spent(task, token):
        if task.state == "dead":
            return ("spent", task.losses)
        if task.state == "queued":
            return ("queued", task.losses)
    return None


def _goes_back(v: View, task: Task, due_in_ms: float, is_unsent: bool) -> Task:
    """The task is queued again."""
    due = v.now + due_in_ms if v.holds("what is lost is looked at") else None
    return task._replace(state="queued", unsent=is_unsent or task.unsent, due=due)


def _make_letter(v: View, task: Task, *, is_stopping: bool, is_owed: bool = True) -> None:
    """The task is a dead letter, which has its object only while an attempt is to be stopped."""
    place = "" if is_stopping else task.object
    v.put(
        v.key("record"),
        task._replace(
            state="dead", buried_ms=str(v.now), has_history=True, due=v.now if is_owed else None,
            object="" if place else task.object,
        ),
    )  # fmt: skip
    free(v, v.arg("id"), place)


def _is_his_to_lose(v: View, task: Task) -> bool:
    if is_current(task, v.arg("attempt"), v.arg("token")):
        return True
    if v.arg("cause") == "":
        return not v.holds("only the current attempt is released")
    return not v.holds("only the current attempt is lost")


def _lose(v: View) -> Reply:
    task_id, attempt, token = v.arg("id"), v.arg("attempt"), v.arg("token")
    task = v.task()
    if task is None:
        drop_claim(v, v.key("claims"), task_id, attempt, token)
        return ("gone",)
    if not _is_his_to_lose(v, task):
        drop_claim(v, v.key("claims"), task_id, attempt, token)
        return _already(task, attempt, token) or ("fenced", task.state)
    if v.arg("due_ms") and (task.due is None or task.due != float(v.arg("due_ms"))):
        return ("changed",)
    is_counted, is_death = v.arg("is_counted") != "", v.arg("is_death") != ""
    most = int(v.arg("max_losses")) if task.max_losses is None else task.max_losses
    losses = task.losses
    if is_counted and v.holds("losses are counted"):
        losses += max(1, task.spared) if is_death else 1
    is_buried = is_counted and not task.revoked and losses > most
    is_stopping = v.arg("is_taken") == "1" and v.arg("cause") == "stuck"
    v.drop_pair(v.key("claims"), task_id)
    owner, claim = task.owner, f"{attempt} {token}"
    task = task.unowned()._replace(
        losses=losses, spent=spend(task.spent, token),
        has_history=task.has_history or v.arg("cause") != "",
    )  # fmt: skip
    if v.arg("is_taken") == "1":
        v.put_pairs(v.key("taken"), v.pairs(v.key("taken")) | {task_id: claim})
        if is_stopping and v.holds("who is stuck is stopped first"):
            task = task._replace(stopping=claim, stopping_on=owner)
    if is_death:
        spared = min(task.spared, 1) if is_counted else task.spared + (v.arg("is_death") == "1")
        task = task._replace(spared=spared)
        if v.arg("is_death") == "2" or spared + losses >= min(2, most + 1):
            task = task._replace(suspect="suspect")
    if is_buried:
        _make_letter(v, task, is_stopping=task.stopping_on != "")
        return ("spent", losses)
    is_due = task.revoked and v.arg("cause") != "stuck"
    task = _goes_back(v, task, 0 if is_due else v.number("due_in_ms"), v.arg("is_unsent") == "1")
    v.put(v.key("record"), task)
    return ("queued", losses)


def _bury(v: View) -> Reply:  # noqa: C901
    attempt = v.arg("attempt")
    found = v.task()
    task = None if found is None or found.called_off else found
    if attempt == "":
        if task is not None and task.epoch != v.arg("epoch"):
            return ("stale",)
        if task is not None and task.state == "dead":
            return ("buried",)
        if task is not None and task.state != "queued":
            return ("fenced", task.state)
        if task is None and v.arg("unproved") == "":
            return ("unrecorded",)
    elif task is None:
        return ("gone",)
    elif (
        task.state == "dead" and str(task.attempt) == attempt and is_spent(task, v.arg("token"))
    ):  # fmt: skip
        return ("buried",)
    elif not is_current(task, attempt, v.arg("token")) and v.holds(
        "only the current attempt is buried"
    ):
        return ("fenced", task.state)
    if found is None or task is None:
        found = (found or Task("dead"))._replace(
            message=v.arg("message"),
            epoch=v.arg("epoch"),
            published_ms=v.now,
            waiting_for="",
            name=v.arg("name"),
            published_as="",
        )
    v.drop_pair(v.key("claims"), v.arg("id"))
    if attempt:
        found = found.unowned()._replace(spent=spend(found.spent, v.arg("token")))
    is_stopping = v.still_stopping(v.key("record")) != ""
    _make_letter(v, found, is_stopping=is_stopping, is_owed=v.arg("owed") == "1")
    return ("buried",)


def loss_rules() -> dict[str, object]:
    """Return the rules of this module, by script."""
    return {
        "lose": _lose, "bury": _bury,
    }  # fmt: skip

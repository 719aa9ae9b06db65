"""Rules of what is published."""

from __future__ import annotations

import json

from proof.model.objects import place_for, stand_for, turn_of
from proof.model.state import ANY, Lock, Reply, Task, View

__all__ = ["publication_rules"]

DAY_MS = 86_400_000


def known_generation(v: View) -> str:
    """Return the generation that messages are stamped with; it begins if nobody knows of one."""
    found = v.meta().get("generation")
    if found is None or float(found) > v.now + DAY_MS:
        found = str(v.now)
        v.note_meta(generation=found, run_id=v.call.run_id)
    return str(found)


def _number(epoch: str) -> int | None:
    """Return the number of a publication among its sender's."""
    parts = epoch.rsplit("-", 1)
    return int(parts[1]) if len(parts) == 2 and parts[1].isdigit() else None


def _sender_says(v: View) -> Reply | None:
    """Return the answer that the sender's numbers alone give: repeated, late or unknown."""
    epoch, number = v.arg("epoch"), v.arg("number")
    if not number or not v.holds("a sender numbers its publications"):
        return None
    last = v.expiring(v.key("sent"))
    said = (last or "").partition(" ")
    if said[0] == epoch:
        answer = json.loads(said[2] or '["recorded"]')
        return tuple(ANY if one is None else one for one in answer)
    if int(number) == 1 and last is None:
        return None
    if last is None or not said[0].endswith(f"-{int(number) - 1}"):
        return ("unknown",)
    return None


def _record(v: View) -> Reply:  # noqa: C901
    epoch, attempt, token = v.arg("epoch"), v.arg("attempt"), v.arg("token")
    if (said := _sender_says(v)) is not None:
        return said
    if (generation := known_generation(v)) != v.arg("generation"):
        return ("other_generation", generation, ANY)
    task, is_replay = v.task(), v.arg("if_exists") == "replay"
    if task is not None and task.epoch == epoch:
        return ("recorded",)
    if is_replay and v.holds("only a dead letter is replayed"):
        is_seen = task is not None and v.arg("buried_ms") in ("", task.buried_ms)
        if task is None or task.state != "dead" or not is_seen:
            return ("not_dead",)

    def refused(*reply: object) -> Reply:
        if v.arg("number"):
            said = f"{epoch} {json.dumps(reply, default=lambda _: None)}"
            v.put(v.key("sent"), Lock(said, v.server_ms + v.number("remember_ms")))
        return reply

    fresh = Task("queued")
    name = v.arg("name") if task is None else task.published_as or task.name
    is_same = task is None or v.arg("name") in (name, task.name)
    is_anew = (
        task is None
        or task.called_off
        or (task.state == "dead" and is_same and v.arg("if_exists") not in ("keep", "refuse"))
    )
    place, before = None, ""
    if is_placed := bool(v.args("object")) and is_anew:
        turn, own = turn_of(v.now, epoch), v.arg("is_own") == "1"
        place, before = place_for(
            v, v.arg("id"), v.arg("object"), int(v.arg("places")), turn, is_own=own
        )
        if before and v.arg("unique"):
            if v.holds("an object that another has is not taken"):
                return refused(*_had(v, before))
            place = v.arg("object")
        task = v.task()
    if attempt:
        is_his = task is not None and task.state == "running"
        is_his = is_his and (str(task.attempt), task.token) == (attempt, token)  # type: ignore[union-attr]
        if not is_his and v.holds("only the current attempt publishes itself again"):
            return refused("not_current")
        if task is None:
            task = Task("queued")
        v.drop_pair(v.key("claims"), v.arg("id"))
        fresh = task.unowned()._replace(has_history=True, spent="")
    elif task is None:
        pass
    elif task.state == "running" and task.heir and task.heir == v.arg("heir"):
        fresh = task.unowned()._replace(object="", spent="")
    elif task.state == "dead" and is_same and v.arg("if_exists") not in ("keep", "refuse"):
        fresh = task._replace(
            losses=0, has_history=True, buried_ms="", resends=0, unsent=False,
            revoked=False,
        )  # fmt: skip
    elif task.called_off:
        fresh, name = task._replace(published_as=""), v.arg("name")
    elif task.state == "waiting" and (
        (task.heir and task.heir == v.arg("heir"))
        or not v.holds("only the canvas's last member has the id")
    ):
        fresh = task._replace(heir="")
    elif v.holds("an id that is there is not published again"):
        if is_same:
            return refused("in_use", task.state, ANY)
        return refused("anothers", task.state, ANY, name)
    is_new = task is None or task.state == "dead" or task.called_off
    if task is not None:
        fresh = fresh.told_anew()._replace(list="", waiting_for="")
        if not is_replay:
            fresh = fresh._replace(max_losses=None)
    due = v.now + v.number("due_in_ms")
    if is_timed := v.arg("waits_for"):
        v.wait_until(v.arg("id"), due)
    v.put(
        v.key("record"),
        fresh._replace(
            state="waiting" if is_timed else "queued",
            waiting_for=is_timed,
            epoch=epoch,
            message=v.arg("message"),
            name=v.arg("name"),
            published_as=fresh.published_as if name == v.arg("name") else name,
            max_losses=int(v.arg("max_losses")) if v.arg("max_losses") else fresh.max_losses,
            used=task is not None or v.arg("used") == "1",
            due=due if v.holds("what is queued is looked at") else None,
            list=v.key("queue") if is_timed and v.arg("is_sent") == "1" else fresh.list,
            published_ms=v.now if is_new and not is_replay else fresh.published_ms,
            object=place or fresh.object,
        ),
    )
    if place:
        v.put(f"lock:{place}", Lock(f"0:{v.arg('id')}"))
    if v.arg("number"):
        v.put(v.key("sent"), Lock(epoch, v.server_ms + v.number("remember_ms")))
    if is_placed and not place:
        queue = v.key("queue") if v.arg("is_sent") == "1" else ""
        each = v.number("due_in_ms")
        stand_for(v, v.arg("id"), v.arg("object"), turn, v.arg("places"), each, queue)
        v.put(v.key("record"), v.get(v.key("record"))._replace(own_places=own))
        return ("standing", before)
    return ("recorded",)


def _had(v: View, before: str) -> Reply:
    """Return what keeps a unique task from its object, for which *before* is in its way."""
    number, _, holder = (v.expiring(f"lock:{v.arg('object')}") or "").partition(":")
    if number == "kept":
        return ("kept_for", holder)
    name = f"task:{before}"
    task: Task | None = v.get(name)
    if task is None or task.state == "dead" or task.called_off:
        return ("still_stopping", before)
    if task.state == "running" and task.concluding and v.arg("unique") == "1":
        return ("concluding",)
    v.put(name, task._replace(attempt=task.attempt or 0))
    return ("locked_by", before)


def publication_rules() -> dict[str, object]:
    """Return the rules of this module, by script."""
    return {"record": _record}

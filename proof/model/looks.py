"""Rules of the sweeper's looks: what is due, sent again, put off, parked, woken, moved."""

from __future__ import annotations

import math
from collections.abc import Mapping

from proof.model.objects import spend
from proof.model.state import ANY, Lock, Reply, View

__all__ = ["look_rules"]


def _is_seen(v: View, due: float | None, n: int = 2) -> bool:
    """Tell whether what is due is due at the time that was seen."""
    return due is not None and v.arg(n) != "" and due == float(v.arg(n))


def _due(v: View) -> Reply:
    # Which of those at the same time come first is the order of their names.
    found = sorted((t.due, one.encode()) for one, t in v.tasks() if t.due is not None)
    ripe = [(one.decode(), due) for due, one in found if due <= v.now][: int(v.number(1))]
    return ("batch", ANY, *(item for one, due in ripe for item in (one, due)))


def _resend(v: View) -> Reply:
    task = v.task()
    if task is None or task.state not in ("queued", "parked"):
        return ("changed",)
    if not _is_seen(v, task.due):
        return ("changed",)
    if task.stopping_on:
        return ("held", task.stopping_on)
    if v.arg(5):
        if task.epoch != v.arg(6):
            return ("changed",)
        task = task._replace(message=v.arg(5), epoch=v.arg(7), waiting_for="")
        v.drop_pair("unplaced", v.arg(1))
    due = v.now + v.number(3) * min(2 ** max(task.resends, 0), 64)
    v.put(v.key(1), task._replace(state="queued", resends=task.resends + 1, unsent=False, due=due))
    return ("send", task.message, due, task.suspect)


def _postpone(v: View) -> Reply:
    task = v.task()
    if task is None:
        # Something may stand in the index without a record.
        return v.either(("changed",), ("gone",))
    if not _is_seen(v, task.due):
        return ("changed",)
    if v.arg(4) == "1":
        task = task._replace(unsent=True, resends=max(task.resends - 1, 0))
    v.put(v.key(1), task._replace(due=v.now + v.number(3)))
    return ("postponed",)


def _divert(v: View) -> Reply:
    task = v.task()
    if task is None:
        return ("absent",)
    if task.state != "queued" or task.epoch != v.arg(2):
        return ("changed",)
    if task.unsent and (math.inf if task.due is None else task.due) <= v.now:
        return ("diverted",)
    v.put(v.key(1), task._replace(resends=0, unsent=True, due=v.now))
    return ("diverted",)


def _park(v: View) -> Reply:
    task = v.task()
    if task is None or task.state not in ("queued", "parked") or not _is_seen(v, task.due):
        return ("changed",)
    is_new = not (task.state == "parked" and task.waiting_for == "workers")
    v.put_pairs("unplaced", v.pairs("unplaced") | {v.arg(1): ""})
    v.put(
        v.key(1),
        task._replace(
            state="parked", waiting_for="workers", resends=0, unsent=False,
            due=v.now + v.number(3),
        ),
    )  # fmt: skip
    return ("unplaced", int(is_new))


def _wake(v: View) -> Reply:
    task = v.task()
    if task is None or task.state != "parked" or task.waiting_for != "workers":
        v.drop_pair("unplaced", v.arg(1))
        return ("changed",)
    if v.arg(2) == "":
        return ("still_waiting",)
    due = float(v.now) if task.due is None else min(task.due, v.now)
    v.put(v.key(1), task._replace(due=due))
    return ("woken",)


def _move(v: View) -> Reply:
    task = v.task()
    if task is None:
        return ("absent",)
    if v.arg(3) in (task.epoch, task.next_epoch):
        return ("moved",)
    is_running = task.state == "running"
    if (task.next_epoch or task.epoch) != v.arg(2) or is_running != (v.arg(6) != ""):
        return ("changed",)
    if task.state not in ("running", "queued", "parked"):
        return ("changed",)
    if is_running and (str(task.attempt), task.token) != (v.arg(6), v.arg(7)):
        return ("changed",)
    task = task._replace(message=v.arg(4), has_history=True)
    if is_running and v.arg(8) == "":
        v.put(v.key(1), task._replace(moved=v.arg(5), next_epoch=v.arg(3)))
        return ("moved",)
    waited_for = task.waiting_for
    task = task._replace(resends=0, moved="", next_epoch="", list="", epoch=v.arg(3))
    if is_running:
        claim, owner = f"{v.arg(6)} {v.arg(7)}", task.owner
        v.drop_pair(v.key(3), v.arg(1))
        v.put_pairs(v.key(4), v.pairs(v.key(4)) | {v.arg(1): claim})
        task = task.unowned()._replace(
            state="queued", unsent=True, ended=v.arg(6), spent=spend(task, v.arg(7)),
            stopping=claim, stopping_on=owner, due=v.now + v.number(9),
        )  # fmt: skip
    elif task.state == "queued":
        task = task._replace(unsent=True, due=v.now)
    elif waited_for == "workers":
        task = task._replace(due=v.now)
    v.put(v.key(1), task)
    return ("moved",)


def _unlist(v: View) -> Reply:
    queues = v.pairs("direct")
    if v.arg(1) not in queues or float(queues[v.arg(1)]) != v.number(2):
        return ("changed",)
    v.drop_pair("direct", v.arg(1))
    return ("unlisted",)


def _reserve(v: View) -> Reply:
    task = v.task()
    waits_for = f"rate {v.arg(4)}"
    if task is None:
        return ("free",)
    epoch, reserved_ms, lapses = (task.reserved or "  ").rsplit(" ", 2)
    is_reserved = bool(reserved_ms) and epoch == v.arg(2)
    is_parked = is_reserved and task.state == "parked" and task.epoch == v.arg(2)
    if is_parked and task.due is not None and task.waiting_for == waits_for:
        return ("parked_until", task.due)
    is_asking = task.state == "queued" and task.epoch == v.arg(2)
    if not is_asking or task.stopping_on or task.revoked:
        return ("free",)
    each = int(v.number(3))
    lapsed = 0
    if is_reserved:
        if v.call.now_us - int(reserved_ms) * 1000 <= max(3 * each, 2_000_000) * 2 ** int(lapses):
            return ("free",)
        lapsed = int(lapses) + 1
    noted = (v.expiring(v.key(3)) or f"0 0 {each}").split(" ")
    given, moment, interval = (int(n) for n in noted)
    if interval > each:
        moment = math.floor(given + (moment - given) * each / interval)
    if given > v.call.now_us:
        moment += v.call.now_us - given
    moment = max(moment, v.call.now_us)
    if moment == v.call.now_us and v.arg(5) == "1":
        return ("free",)
    following = moment + each
    until = v.now + math.ceil((following - v.call.now_us) / 1000) + 1000
    v.put(v.key(3), Lock(f"{v.call.now_us} {following} {each}", until))
    due = math.ceil(moment / 1000)
    task = task._replace(reserved=f"{v.arg(2)} {due} {lapsed}")
    if moment == v.call.now_us:
        v.put(v.key(1), task)
        return ("free",)
    v.put(
        v.key(1),
        task._replace(state="parked", waiting_for=waits_for, resends=0, unsent=False, due=due),
    )
    v.put_pairs(v.key(4), v.pairs(v.key(4)) | {v.arg(1): str(due)})
    return ("parked_until", due)


def _set_right(v: View, line: str, dues: Mapping[str, float | None]) -> None:
    """Set both ends of a line right, if its first or its last is not due then."""

    def stands() -> list[tuple[float, bytes]]:
        return sorted((float(due), one.encode()) for one, due in v.pairs(line).items())

    def is_right(one: tuple[float, bytes]) -> bool:
        return dues.get(one[1].decode()) == one[0]

    found, limit = stands(), int(v.number(4))
    if not found or (is_right(found[0]) and is_right(found[-1])):
        return
    for end in (slice(0, limit), slice(-limit, None)):
        for one in stands()[end]:
            if not is_right(one):
                name, due = one[1].decode(), dues.get(one[1].decode())
                v.drop_pair(line, name)
                if due is not None and due < one[0]:
                    v.put_pairs(line, v.pairs(line) | {name: str(int(due))})


def _ripe(v: View) -> Reply:
    pacer = v.expiring(v.key(1))
    is_anothers = pacer not in (None, v.arg(1))
    before = v.now - (v.number(3) if is_anothers else 0)
    reply: list[object] = ["ripe", ANY]
    dues = {name.removeprefix("task:"): task.due for name, task in v.tasks()}
    for line in v.call.keys[2:]:
        _set_right(v, line, dues)
        stands = sorted(
            (float(due), one.encode()) for one, due in v.pairs(line).items()
        )[: int(v.number(4))]  # fmt: skip
        for due, name in stands:
            if due > before:
                break
            v.drop_pair(line, name.decode())
            reply += [name.decode(), due]
    if is_anothers and len(reply) == 2:
        return ("another", ANY)
    v.put(v.key(1), Lock(v.arg(1), v.now + v.number(2)))
    return tuple(reply)


def look_rules() -> dict[str, object]:
    """Return the rules of this module, by script."""
    return {
        "due": _due, "resend": _resend, "postpone": _postpone, "divert": _divert, "park": _park,
        "wake": _wake, "move": _move, "unlist": _unlist, "reserve": _reserve, "ripe": _ripe,
    }  # fmt: skip

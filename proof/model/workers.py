"""Rules of workers: alive, declared dead once, absent; and of attempts that they have to stop."""

from __future__ import annotations

import re

from proof.model.objects import free
from proof.model.state import ANY, Reply, View, Worker

__all__ = ["worker_rules"]

_STOP = re.compile(r"^(\d+) [a-zA-Z]+ (.*)$", re.DOTALL)


def _register(v: View) -> Reply:
    meta, worker = v.meta(), v.worker(v.key("worker"))
    noted = meta.get("format")
    if str(noted).isdigit() and int(str(noted)) > v.number("format"):
        return ("newer", noted)
    if worker is not None and worker.state == "dead":
        return ("declared_dead",)
    if worker is not None and worker.renewals >= v.number("number"):
        return ("registered",)
    v.keep_clock()
    before = worker or Worker("alive")
    v.put(
        v.key("worker"),
        before._replace(
            state="alive", renewals=int(v.number("number")), connection=v.arg("client_id"),
            run_id=v.call.run_id,
            lease_ms=v.number("lease_ms"), lease_until=v.now + v.number("lease_ms"),
        ),
    )  # fmt: skip
    if noted is None:
        v.note_meta(format=v.arg("format"))
    if v.arg("queue"):
        v.put_pairs("direct", v.pairs("direct") | {v.arg("queue"): str(v.now)})
    return ("registered",)


def _heartbeat(v: View) -> Reply:
    v.keep_clock()
    worker = v.worker(v.key("worker"))
    if worker is None:
        said = "forgotten"
    else:
        said = "renewed" if worker.state == "alive" else "beat_of_dead"
    if worker is not None and worker.state == "alive" and worker.renewals < v.number("number"):
        v.put(
            v.key("worker"),
            worker._replace(
                renewals=int(v.number("number")), connection=v.arg("client_id"),
                lease_ms=v.number("lease_ms"),
                lease_until=v.now + v.number("lease_ms"), run_id=v.call.run_id,
                missing_ms=None, missing_renewals="",
            ),
        )  # fmt: skip
    runs, stops = v.pairs(v.key("claims")), v.pairs(v.key("stops"))
    told = []
    for task_id, stop in sorted(stops.items()):
        of, claim = _STOP.match(stop), runs.get(task_id, "").split(" ", 2)
        if of and len(claim) == 3 and (of[1], of[2]) == (claim[0], claim[2]):
            told.append((task_id, stop))
        else:
            v.drop_pair(v.key("stops"), task_id)
    taken = sorted(v.pairs(v.key("taken")).items())
    return (said, ANY, ANY, len(told), len(runs), frozenset(told), frozenset(taken))


def _declare(v: View) -> Reply:  # noqa: C901
    worker = v.worker(v.key("worker"))
    if worker is None:
        return ("gone",)
    if worker.state == "dead":
        return ("already",)
    is_seen = str(worker.renewals) == v.arg("renewals") and worker.connection == v.arg("client_id")
    if not is_seen and v.holds("who has renewed since is alive"):
        return ("alive",)
    lease, until, meta = worker.lease_ms, worker.lease_until, v.meta()
    if v.arg("expected_ms") and v.now - v.number("expected_ms") > lease / 4:
        return ("grace", ANY)
    if v.arg("cause") == "connection":
        if not v.call.run_id or worker.run_id != v.call.run_id:
            return ("alive",)
        missing = worker.missing_ms
        is_noted = missing is not None and worker.missing_renewals == str(worker.renewals)
        if not is_noted or missing < meta.get("interrupted_ms", 0):
            v.put(
                v.key("worker"),
                worker._replace(missing_ms=v.now, missing_renewals=str(worker.renewals)),
            )
            return ("suspected",)
        if v.now - missing < v.number("witness_ms"):  # type: ignore[operator]
            return ("suspected",)
    else:
        if until > v.now and v.holds("a lease is waited for"):
            return ("alive",)
        if meta.get("grace_ms", 0) > v.now:
            return ("grace", ANY)
        if v.now - meta.get("passed_ms", v.now) > max(lease, 5000):
            return ("grace", ANY)
    runs = v.pairs(v.key("claims"))
    verdict, charged = "nobody", ""
    if worker.suspect and runs.get(worker.suspect) == worker.suspect_claim:
        verdict, charged = "suspect", worker.suspect
    elif len(runs) == 1:
        verdict, charged = "only", next(iter(runs))
    v.put(
        v.key("worker"),
        worker._replace(state="dead", lease_until=until, verdict=verdict, charged=charged),
    )
    return ("declared",)


def _deregister(v: View) -> Reply:
    runs = v.pairs(v.key("claims"))
    if (runs or v.number("in_unacked") > 0) and v.holds("who holds something is not forgotten"):
        return ("refused", len(runs))
    v.put(v.key("worker"), None)
    v.put(v.key("stops"), None)
    return ("deregistered",)


def _acknowledge(v: View) -> Reply:
    task_id, claim = v.arg("id"), v.arg("claim")
    if v.pairs(v.key("taken")).get(task_id) != claim and v.holds("who stopped names the claim"):
        return ("changed",)
    task = v.task()
    v.drop_pair(v.key("taken"), task_id)
    if task is not None and task.stopping == claim:
        task, place = task._replace(stopping="", stopping_on=""), task.object
        if task.state == "dead":
            v.put(v.key("record"), task._replace(object=""))
            free(v, task_id, place)
        else:
            due = task.due if task.waiting_for not in ("", "stop") else v.now
            v.put(v.key("record"), task._replace(due=due))
    return ("acknowledged",)


def worker_rules() -> dict[str, object]:
    """Return the rules of this module, by script."""
    return {
        "register": _register, "heartbeat": _heartbeat, "declare": _declare,
        "deregister": _deregister, "acknowledge": _acknowledge,
    }  # fmt: skip

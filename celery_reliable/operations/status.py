"""All of it in one value: what waits, runs and failed, who sweeps, and what the servers say."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice

from celery import Celery

from celery_reliable.app import reliable_of
from celery_reliable.clock import moment, utc
from celery_reliable.findings import Limits, ServerFacts, check
from celery_reliable.ledger import Ledger
from celery_reliable.log import as_shown
from celery_reliable.message import NamedWorkers
from celery_reliable.operations.queues import BrokerUnavailable, Queues, broker_asked
from celery_reliable.operations.stop_button import obeyed_by
from celery_reliable.operations.views import (
    FullStatus,
    LastPass,
    NobodyAlive,
    Queue,
    Worker,
    WorkerDeath,
)
from celery_reliable.operations.workers import Workers
from celery_reliable.recovery import BrokerView

__all__ = ["look_at_status"]

#: Of those that wait for workers so many are looked at, and so many kinds of them are reported.
_LOOKED_AT = 1_000
_MOST_KINDS = 20
#: So many of a kind are asked since when they wait.
_MOST_EXAMPLES = 20


def look_at_status(app: Celery, ledger: Ledger, broker: BrokerView, limits: Limits) -> FullStatus:
    """Look at everything once, and at what is wrong by *limits*.  Raises what the ledger raises; a
    broker that is away is part of the answer.

    What is read is bounded, however many records and dead letters there are.
    """
    reliable = reliable_of(app)
    now_ms, n_dead = ledger.workers.time_ms(), ledger.count_dead()
    meta = ledger.passes.meta()
    workers = tuple(Workers(app, ledger, broker).all())
    alive = [one for one in workers if one.state == "alive"]
    looked_at = Queues(app, ledger, broker)
    states, is_exact = looked_at.states()
    queues, problem = _queues(app, looked_at, workers)
    since_ms = now_ms - int(1000 * limits.recent_seconds)
    groups = tuple(ledger.groups.counts(since_ms=since_ms))
    by_reason: Counter[str] = Counter()
    for one in groups:
        by_reason[one.group.reason] += one.count
    by_state = Counter(one.state for one in workers)
    for_workers = ledger.named.waiting()
    status = FullStatus(
        at=utc(now_ms),
        app=reliable.project[0],
        namespace=ledger.namespace,
        ledger=ServerFacts.from_info(
            ledger.server_facts(),
            url=ledger.connector.shown,
            has_sentinel=ledger.connector.has_sentinel,
        ),
        last_pass=_last_pass(meta, now_ms),
        orders=tuple(obeyed_by(ledger, ledger.orders.read())),
        tasks={**states, "running": sum(one.claims for one in workers), "dead": n_dead},
        is_exact=is_exact,
        waiting_for_worker=for_workers,
        nobody_alive=_nobody_alive(ledger, alive) if for_workers else (),
        dead_by_reason=dict(sorted(by_reason.items())),
        workers_by_state={state: by_state[state] for state in ("alive", "lapsed", "dead")},
        workers=workers,
        slots=sum(one.slots or 0 for one in alive),
        saturation=None,
        deaths=tuple(
            WorkerDeath(one["worker"], one["cause"], moment(one["at_ms"]), one["claims"])
            for one in json.loads(meta.get("deaths") or "[]")
        ),
        queues=queues,
        held_back=looked_at.held_back(),
        broker_problem=problem,
        totals=ledger.happenings.totals(),
        groups=groups,
        config=reliable.config,
        limits=limits,
        trimmed=int(meta.get("trimmed") or 0),
        trimmed_at=moment(int(meta.get("trimmed_ms") or 0)),
    )
    if status.slots:
        busy = sum(one.busy for one in alive) + status.waiting
        status = replace(status, saturation=round(busy / status.slots, 3))
    return replace(status, findings=tuple(check(status)))


def _queues(
    app: Celery, queues: Queues, workers: tuple[Worker, ...]
) -> tuple[tuple[Queue, ...], str]:
    try:
        with broker_asked(app):
            return tuple(queues.all(workers)), ""
    except BrokerUnavailable as exc:
        # Without the password that may be in what it says.
        return (), as_shown(exc.__cause__)


def _last_pass(meta: Mapping[str, str], now_ms: int) -> LastPass:
    ended_ms = int(meta.get("passed_ms") or 0)
    if not ended_ms:
        return LastPass()
    # What was noted by a clock that was ahead is no time to come.
    age_seconds = max(0.0, round((now_ms - ended_ms) / 1000, 3))
    return LastPass(moment(ended_ms), age_seconds, json.loads(meta.get("report") or "{}"))


def _nobody_alive(ledger: Ledger, workers: Sequence[Worker]) -> tuple[NobodyAlive, ...]:
    ids: defaultdict[tuple[tuple[str, ...], bool], list[str]] = defaultdict(list)
    entries = chain.from_iterable(ledger.named.each_waiting())
    for task_id, text in islice(entries, _LOOKED_AT):
        named = NamedWorkers.from_text(text)
        ids[named.only, bool(named.run)].append(task_id)
    living = {one.nodename: f"{one.nodename} (drained)" if one.drained else "" for one in workers}
    found = []
    kinds = sorted(ids, key=lambda kind: len(ids[kind]), reverse=True)
    for only, is_run in kinds[:_MOST_KINDS]:
        waiting = ids[only, is_run]
        alive = tuple(
            living[name] or name for name in sorted(living) if NamedWorkers(only).means(name)
        )
        looks = filter(None, ledger.look_all(waiting[:_MOST_EXAMPLES]))
        times = [one.record.since_ms for one in looks]
        since = moment(min(filter(None, times), default=0))
        found.append(NobodyAlive(only, is_run, len(waiting), alive, since))
    return tuple(found)

"""What is wrong with a namespace just now, by its status.

Pure.  Each finding has a name that stays, says what happens, and what to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from celery_reliable.leases import nodename_of, too_long_seconds
from celery_reliable.model import Finding
from celery_reliable.operations import shapes
from celery_reliable.operations.depths import QueueView
from celery_reliable.operations.finding_words import PREFIX, counted, listed
from celery_reliable.operations.letter_checks import burials, room
from celery_reliable.operations.order_words import in_words
from celery_reliable.operations.status import RECENT_SECONDS, Status
from celery_reliable.operations.times import span
from celery_reliable.operations.workers import WorkerView
from celery_reliable.orders import OrderKind
from celery_reliable.settings import check_server

__all__ = ["Limits", "check", "finding_view", "status_view"]

#: A full pass that finds its oldest so late falls behind.
_LATE_SECONDS = 60.0
#: An order without an end that holds for longer may have been forgotten.
_FORGOTTEN_SECONDS = 900.0


@dataclass(frozen=True)
class Limits:
    """From when on something is wrong.

    Attributes:
        oldest_seconds: for so long a task may wait in its queue.
        recent_seconds: so long ago a death is still told; `Status.recent_seconds` says so of
            burials.
        fill: so much of the ledger's memory may be used, from 0 to 1.
        run_seconds: for so long an attempt may run.
        failures: so many tasks that failed for good are many, within `Status.recent_seconds`; ten
            times as many are an error.
    """

    oldest_seconds: float = 300.0
    recent_seconds: float = RECENT_SECONDS
    fill: float = 0.9
    run_seconds: float = 1200.0
    failures: int = 100


def check(status: Status, limits: Limits | None = None) -> list[Finding]:
    """Return what is wrong, errors first; nothing of a system that is well."""
    limits = limits or Limits()
    found = [
        *_sweeper(status),
        *_workers(status, limits),
        *_orders(status),
        *_nobody(status, limits),
        *_deaths(status, limits),
        *_queues(status, limits),
        *burials(status, failures=limits.failures),
        *room(status, recent_seconds=limits.recent_seconds),
        *_server(status, limits),
    ]
    return sorted(found, key=lambda one: one.level != "error")


def finding_view(one: Finding) -> shapes.FindingView:
    """Return a finding as plain JSON values."""
    return {"id": one.id, "severity": one.level, "message": one.message, "hint": one.hint}


def status_view(status: Status, findings: Iterable[Finding]) -> shapes.StatusWithFindings:
    """Return a status and what is wrong with it as plain JSON values."""
    return {**status.as_dict(), "findings": [finding_view(one) for one in findings]}


def _patience_seconds(status: Status) -> float:
    """For how long nothing may move that is to move all the time."""
    return too_long_seconds(status.lease_seconds, status.sweep_seconds)


def _sweeper(status: Status) -> Iterator[Finding]:
    last, alive = status.last_pass, status.workers_by_state["alive"]
    is_quiet = not status.workers and not any(status.tasks.values()) and not status.waiting
    silent = last.seconds_ago is None or last.seconds_ago > _patience_seconds(status)
    just_begun = last.seconds_ago is None and any(
        status.now_ms - one.registered_ms < 1000 * _patience_seconds(status)
        for one in status.workers
    )
    if silent and not is_quiet and not just_begun:
        since = "has never run" if last.seconds_ago is None else f"ran {span(last.seconds_ago)} ago"
        yield Finding(
            f"{PREFIX}sweeper_silent",
            "error",
            f"The last pass of the sweeper {since}; it should run every "
            f"{status.sweep_seconds:g} s. Until it runs, nothing that is lost comes back, and no "
            "parked task is sent.",
            "Passes are run by workers: "
            + (
                f"{alive} are alive, so look for pass_failed in their logs."
                if alive
                else "none is alive. Start one, or run `celery -A … reliable sweep`."
            ),
        )
    report = last.report
    if report.get("failed"):
        yield Finding(
            f"{PREFIX}pass_failed",
            "warning",
            f"The last pass could not deal with {report['failed']} of what it looked at, and tries "
            "again with each pass.",
            "The logs of the workers say why: not_recovered, not_lost, not_given_back, "
            "not_handled.",
        )
    late_seconds = float(report.get("oldest_overdue_seconds") or 0)
    if report.get("is_full") and late_seconds > _LATE_SECONDS:
        yield Finding(
            f"{PREFIX}sweeper_behind",
            "warning",
            f"Passes have more to do than they can: the oldest task at which one had to look was "
            f"due {span(late_seconds)} before.",
            "Raise SWEEP_BATCH, or see why so much is parked to one time, or lost.",
        )


def _workers(status: Status, limits: Limits) -> Iterator[Finding]:
    patience_seconds = _patience_seconds(status)
    if not status.workers_by_state["alive"]:
        waits = (status.waiting or status.tasks["queued"]) + status.tasks["parked"]
        yield Finding(
            f"{PREFIX}no_worker",
            "error" if waits else "info",
            f"{counted(waits, 'task')} waiting, and no worker is alive."
            if waits
            else "No worker is alive. Nothing waits for one.",
            "Start workers, or see why they end: their logs say so.",
        )
    yield from _long_runs(status, limits)
    for one in status.workers:
        if one.state == "lapsed":
            yield Finding(
                f"{PREFIX}worker_lapsed",
                "error",
                f"The lease of {one.nodename} (pid {one.pid}) ran out {span(-one.seconds_left)} "
                f"ago, and nobody has declared it dead. It runs {_tasks(one)}.",
                "It is dead, frozen, or cannot reach the ledger. A pass of another worker takes "
                "back what it holds.",
            )
        elif one.state == "dead" and not one.is_thawed:
            yield from _stuck_recovery(status, one, patience_seconds)
        elif one.state == "alive" and not one.is_leaving:
            yield from _standing(status, one, patience_seconds)


def _orders(status: Status) -> Iterator[Finding]:
    deaf = sorted({name for one in status.orders if one.in_force for name in one.deaf})
    if deaf:
        yield Finding(
            f"{PREFIX}worker_knows_no_orders",
            "error",
            f"{len(status.orders)} order(s) of operators hold, and workers of an older release do "
            f"not know them: {listed(deaf)}. They go on.",
            "Restart them with this release, or stop them. `reliable orders` lists what is "
            "paused, struck and drained.",
        )

    for view in status.orders:
        age_seconds = (status.now_ms - view.order.given_ms) / 1000
        if not view.in_force or view.order.until_ms or age_seconds < _FORGOTTEN_SECONDS:
            continue
        held = view.parked
        if view.order.kind is OrderKind.PAUSE:
            held = sum(one.depth or 0 for one in status.queues if view.order.names(one.name))
        yield Finding(
            f"{PREFIX}order_without_end",
            "warning",
            f"{in_words(view.order)}. It holds for {span(age_seconds)}, and nothing ends it by "
            f"itself; {counted(held, 'task')} waiting for that.",
            f"`reliable resume {view.order.id}`; or give the order again with --for.",
        )


def _nobody(status: Status, limits: Limits) -> Iterator[Finding]:
    """Tasks that name workers of which none is alive."""
    late = [
        one
        for one in status.waits.named
        if not one.alive
        and one.since_ms
        and status.now_ms - one.since_ms > 1000 * limits.oldest_seconds
    ]
    if late:
        since_ms = min(one.since_ms for one in late)
        yield Finding(
            f"{PREFIX}named_worker_missing",
            "warning",
            f"Tasks may run on certain workers only, of which none is alive: "
            f"{listed([one.sentence for one in late])}. The longest waits for "
            f"{span((status.now_ms - since_ms) / 1000)}.",
            "Start such a worker, or let others run them: `reliable move ID --anywhere`.",
        )


def _long_runs(status: Status, limits: Limits) -> Iterator[Finding]:
    found = sorted(
        (run.since_ms, f"{run.name}[{run.task_id}] on {one.nodename}")
        for one in status.workers
        if one.state == "alive"
        for run in one.runs
        if run.since_ms and status.now_ms - run.since_ms > 1000 * limits.run_seconds
    )
    if found:
        yield Finding(
            f"{PREFIX}long_run",
            "warning",
            f"{counted(len(found), 'attempt')} running for longer than "
            f"{span(limits.run_seconds)}, the first since "
            f"{span((status.now_ms - found[0][0]) / 1000)}: {listed([one for _, one in found])}.",
            "If it hangs, end it (`reliable revoke ID --if-running kill`) and give its task a "
            "time_limit. If it is to take so long, raise --max-run.",
        )


def _stuck_recovery(status: Status, one: WorkerView, patience_seconds: float) -> Iterator[Finding]:
    at_ms = next((death.at_ms for death in status.deaths if death.worker == one.worker), 0)
    # Of many deaths the last ones are known.  For so long its lease is over at least.
    age_seconds = (status.now_ms - at_ms) / 1000 if at_ms else -one.seconds_left
    if age_seconds > patience_seconds:
        yield Finding(
            f"{PREFIX}recovery_stuck",
            "error",
            f"{one.nodename} was declared dead {span(age_seconds)} ago, and what it held is still "
            f"not recovered: {_tasks(one) if one.claims else 'messages that it had fetched'}.",
            "The logs of living workers say why: not_recovered, not_given_back, pass_failed.",
        )


def _standing(status: Status, one: WorkerView, patience_seconds: float) -> Iterator[Finding]:
    turned_seconds = (status.now_ms - one.turned_ms) / 1000 if one.turned_ms else 0.0
    # With `solo` the main loop runs the task.
    is_busy_alone = one.pool == "solo" and one.running
    if turned_seconds > patience_seconds and not is_busy_alone:
        yield Finding(
            f"{PREFIX}worker_stands",
            "error",
            f"The main loop of {one.nodename} (pid {one.pid}) has not turned for "
            f"{span(turned_seconds)}: it takes no task and hears no command.",
            "Something holds its main process (a signal handler, a full disk, a broker that does "
            "not answer). After STALL_SECONDS it counts as dead. `py-spy dump` shows where.",
        )
        return
    idle_seconds = (status.now_ms - one.begun_ms) / 1000 if one.begun_ms else 0.0
    if idle_seconds <= patience_seconds or not one.idle_slots:
        return
    waiting = [
        queue
        for queue in status.queues
        if not (one.is_drained or status.is_paused(queue.name))
        and queue.name in one.queues
        and (queue.oldest_seconds or 0) > patience_seconds
    ]
    if waiting:
        names = ", ".join(queue.name for queue in waiting)
        yield Finding(
            f"{PREFIX}worker_takes_nothing",
            "error",
            f"{one.nodename} (pid {one.pid}) lives and has {one.idle_slots} of {one.slots} slots "
            f"free, but has begun nothing for {span(idle_seconds)}, while work waits in what it "
            f"consumes: {names}.",
            "Its connection to the broker may be dead in a way that nobody noticed. Restart it; "
            "what it holds is not lost.",
        )


def _deaths(status: Status, limits: Limits) -> Iterator[Finding]:
    recent = [
        one
        for one in status.deaths
        if 0 <= status.now_ms - one.at_ms <= 1000 * limits.recent_seconds
    ]
    if recent:
        last = recent[-1]
        names = listed([nodename_of(one.worker) for one in recent])
        yield Finding(
            f"{PREFIX}worker_died",
            "warning",
            f"{len(recent)} worker(s) were declared dead in the last "
            f"{span(limits.recent_seconds)}: {names}; the last one "
            f"{span((status.now_ms - last.at_ms) / 1000)} ago ({last.cause}), with "
            f"{last.claims} tasks that it ran. They run again elsewhere.",
            '"connection": its process ended without saying so (killed, out of memory, a lost '
            'machine). "lapsed": it stood still or lost its network. A worker that is stopped '
            "by SIGTERM is not among them.",
        )


def _queues(status: Status, limits: Limits) -> Iterator[Finding]:
    if status.broker_problem:
        yield Finding(
            f"{PREFIX}broker_away",
            "error",
            f"The queues could not be looked at: {status.broker_problem}",
            "Check that the broker is up and that broker_url names it. What is published "
            "meanwhile fails, or stays recorded with OUTBOX.",
        )
    patience_seconds = _patience_seconds(status)
    alive = [one for one in status.workers if one.state == "alive"]
    all_tell = bool(alive) and all(one.slots is not None for one in alive)
    for queue in status.queues:
        age_seconds = queue.oldest_seconds or 0.0
        if status.is_paused(queue.name):
            # Somebody wants it so, and the status says who.
            continue
        if _has_no_consumer(queue, age_seconds > patience_seconds, all_tell):
            yield Finding(
                f"{PREFIX}queue_without_consumer",
                "error",
                f"{queue.depth} messages wait in {queue.name!r}, and no living worker consumes it.",
                f"Start a worker with `-Q {queue.name}`, or find out who sends there.",
            )
            continue
        if age_seconds > limits.oldest_seconds:
            yield Finding(
                f"{PREFIX}queue_old",
                "warning",
                f"The oldest task in {queue.name!r} waits for {span(age_seconds)}, with "
                f"{queue.depth} messages there.",
                _drained(status, queue)
                or "More comes than is worked off: start more workers, or see what their slots are "
                "taken by (`reliable workers`).",
            )


def _drained(status: Status, queue: QueueView) -> str:
    """Return what to do where each living worker of a queue is drained; empty where one is not."""
    consumers = [one for one in status.workers if one.state == "alive" and queue.name in one.queues]
    if not consumers or not all(one.is_drained for one in consumers):
        return ""
    names = listed([one.nodename for one in consumers])
    return (
        f"Operators have drained all that consume it: {names}. `reliable orders` says who and why; "
        "`reliable resume ORDER` ends it."
    )


def _has_no_consumer(queue: QueueView, is_old: bool, all_tell: bool) -> bool:
    if not queue.depth:
        return False
    if queue.consumers is not None:
        return queue.consumers == 0
    return is_old and all_tell and not queue.workers


def _server(status: Status, limits: Limits) -> Iterator[Finding]:
    yield from check_server(status.server.facts)
    fill = status.server.fill
    if fill is not None and fill >= limits.fill:
        is_full = fill >= 1
        yield Finding(
            f"{PREFIX}ledger_full",
            "error" if is_full else "warning",
            f"The ledger's Redis has used {fill:.0%} of its maxmemory"
            + (": nothing can be published, and attempts wait." if is_full else "."),
            "Raise maxmemory, or see what takes it: queues nobody works off, results without an "
            "expiry, dead letters (DEAD_LETTER_MAX).",
        )


def _tasks(one: WorkerView) -> str:
    if not one.runs:
        return f"{one.claims} tasks"
    return listed([f"{run.name}[{run.task_id}]" for run in one.runs])

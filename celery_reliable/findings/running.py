"""The part of the table that is about a running system, by its status.

The status is `operations.Status`, which is made on a floor above this one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from celery_reliable.clock import span
from celery_reliable.findings.entries import (
    Entry,
    Finding,
    Limits,
    Running,
    Seen,
    counted,
    listed,
    look,
    worst_first,
)
from celery_reliable.findings.servers import SERVER
from celery_reliable.leases import nodename_of
from celery_reliable.orders import OrderKind

__all__ = ["RUNNING", "check"]

#: A full pass that finds its oldest task so late falls behind.
_LATE_SECONDS: Final = 60.0
#: An order without an end may have been forgotten after this long.
_FORGOTTEN_SECONDS: Final = 900.0
#: Dead letters fill their room from this share of it on.
_FILLED: Final = 0.8
_LOGS: Final = "The logs of living workers say why: not_recovered, not_lost, not_given_back"


def check(status: Any, limits: Limits | None = None) -> list[Finding]:
    """Return what is wrong by a status (`operations.Status`), errors first."""
    running = Running(status, limits or status.limits)
    return worst_first([*look(RUNNING, running), *look(SERVER, status.ledger)])


def _silent(run: Running) -> Seen:
    status, alive = run.status, len(run.alive)
    ago = status.last_pass.seconds_ago
    is_quiet = not status.workers and not any(status.tasks.values()) and not status.waiting
    ages = (run.age(one.registered_at) for one in status.workers)
    is_new = ago is None and any(age < run.long_seconds for age in ages)
    if is_quiet or is_new or (ago is not None and ago <= run.long_seconds):
        return None
    do = f"{alive} are alive: look for pass_failed in their logs."
    if not alive:
        do = "None is alive. Start one, or run `celery -A … reliable sweep`."
    since = "has never run" if ago is None else f"ran {span(ago)} ago"
    return {"since": since, "every": f"{status.config.sweep_seconds:g}", "do": do}


def _behind(run: Running) -> Seen:
    report = run.status.last_pass.report
    late = float(report.get("oldest_overdue_seconds") or 0)
    return {"late": span(late)} if report.get("is_full") and late > _LATE_SECONDS else None


def _no_worker(run: Running) -> Seen:
    status = run.status
    waits = (status.waiting or status.tasks["queued"]) + status.tasks["waiting"]
    seen = {"severity": "error" if waits else "info", "waits": f"{counted(waits, 'task')} waiting"}
    return None if run.alive else seen


def _runs(worker: Any) -> str:
    named = [f"{run.name}[{run.task_id}]" for run in worker.runs]
    return listed(named) if named else counted(worker.claims, "task")


def _worker(worker: Any, **values: Any) -> dict[str, Any]:
    return {"name": worker.nodename, "pid": worker.pid, "runs": _runs(worker), **values}


def _stuck(run: Running) -> Iterator[dict[str, Any]]:
    # Of many deaths only the last ones are known.  The lease is over for this long at least.
    died = {one.worker: one.at for one in reversed(run.status.deaths)}
    for one in run.status.workers:
        age = run.age(died.get(one.worker)) or -one.seconds_left
        if one.state == "dead" and not one.thawed and age > run.long_seconds:
            held = _runs(one) if one.claims else "the messages that it had fetched"
            yield _worker(one, since=span(age), held=held)


def _is_standing(run: Running, worker: Any) -> bool:
    # With `solo` the main loop runs the task.
    is_busy_alone = worker.pool == "solo" and worker.running
    is_late = run.age(worker.turned_at) > run.long_seconds
    return is_late and not (is_busy_alone or worker.leaving)


def _takes_nothing(run: Running) -> Iterator[dict[str, Any]]:
    for one in run.alive:
        is_out = one.leaving or one.drained or _is_standing(run, one)
        if is_out or not one.idle_slots or run.age(one.begun_at) <= run.long_seconds:
            continue
        queues = [
            queue.name
            for queue in run.status.queues
            if queue.name in one.queues
            and not queue.paused
            and (queue.oldest_seconds or 0) > run.long_seconds
        ]
        if queues:
            since, slots = span(run.age(one.begun_at)), f"{one.idle_slots} of {one.slots} slots"
            yield _worker(one, since=since, slots=slots, queues=", ".join(queues))


def _died(run: Running) -> Seen:
    known = (one for one in run.status.deaths if one.at)
    recent = [one for one in known if 0 <= run.age(one.at) <= run.limits.recent_seconds]
    if not recent:
        return None
    last, names = recent[-1], [nodename_of(one.worker) for one in recent]
    causes = {"connection": "connection closed", "lapsed": "no heartbeat"}
    return {
        "names": listed(names),
        "workers": counted(len(names), "worker"),
        "lately": f"in the last {span(run.limits.recent_seconds)}",
        "ago": span(run.age(last.at)),
        "cause": causes.get(last.cause, last.cause),
        "claims": counted(last.claims, "task") if last.claims else "nothing",
    }


def _forgotten(run: Running) -> Iterator[dict[str, Any]]:
    status = run.status
    for order in status.orders:
        age = run.age(order.given_at)
        if not order.in_force or order.until or age < _FORGOTTEN_SECONDS:
            continue
        held = order.waiting
        if order.kind is OrderKind.PAUSE:
            held = sum(one.depth or 0 for one in status.queues if order.names(one.name))
        yield {
            "what": f"{order.kind.value} {order.target}"
            + ("" if order.object_id is None else f" (object {order.object_id})"),
            "by": (order.by or "somebody") + (f": {order.why}" if order.why else ""),
            "since": span(age),
            "held": counted(held, "task"),
            "id": order.id,
        }


def _nobody(run: Running) -> Seen:
    named = [one for one in run.status.nobody_alive if not one.alive]
    late = [one for one in named if run.age(one.since) > run.limits.oldest_seconds]
    longest = max((run.age(one.since) for one in late), default=0.0)
    names = listed([one.sentence for one in late])
    return {"names": names, "since": span(longest)} if late else None


def _long_runs(run: Running) -> Seen:
    found = sorted(
        (one.since, f"{one.name}[{one.task_id}] on {worker.nodename}")
        for worker in run.alive
        for one in worker.runs
        if run.age(one.since) > run.limits.run_seconds
    )
    return bool(found) and {
        "runs": counted(len(found), "attempt"),
        "limit": span(run.limits.run_seconds),
        "since": span(run.age(found[0][0])),
        "names": listed([name for _, name in found]),
    }


def _has_no_consumer(run: Running, queue: Any) -> bool:
    if not queue.depth or queue.paused:
        return False
    if queue.consumers is not None:
        # A worker that is busy for long consumes nothing, and says what it will consume again.
        return queue.consumers == 0 and not queue.workers
    all_tell = bool(run.alive) and all(one.slots is not None for one in run.alive)
    is_old = (queue.oldest_seconds or 0) > run.long_seconds
    return is_old and all_tell and not queue.workers


def _old_queues(run: Running) -> Iterator[dict[str, Any]]:
    for queue in run.status.queues:
        oldest = queue.oldest_seconds or 0.0
        is_elsewhere = queue.paused or _has_no_consumer(run, queue)
        if oldest > run.limits.oldest_seconds and not is_elsewhere:
            yield {
                "name": repr(queue.name),
                "depth": queue.depth,
                "oldest": span(oldest),
            }


def _buried(run: Running, noun: str, *reasons: str) -> dict[str, Any] | None:
    groups = [one for one in run.status.groups if one.recent and one.group.reason in reasons]
    if not groups:
        return None
    counts = Counter[str]()
    for one in groups:
        counts[one.group.task or "(not readable)"] += one.recent
    last = max(groups, key=lambda one: one.last_ms)
    return {
        "count": counts.total(),
        "sum": counted(counts.total(), noun),
        "lately": f"in the last {span(run.limits.recent_seconds)}",
        "names": listed([f"{name} {count}" for name, count in counts.most_common()]),
        "id": last.example_id,
        "cause": last.group.cause or last.group.reason,
    }


def _failures(run: Running) -> Seen:
    found, limit = _buried(run, "task", "failed", "rejected"), run.limits.failures
    if found is None or found["count"] < limit:
        return None
    return {**found, "severity": "error" if found["count"] >= 10 * limit else "warning"}


def _trimmed(run: Running) -> Seen:
    status, age = run.status, run.age(run.status.trimmed_at)
    if not status.trimmed_at or not 0 <= age <= run.limits.recent_seconds:
        return None
    return {"most": status.config.dead_letter_max, "ago": span(age), "trimmed": status.trimmed}


def _full(run: Running) -> Seen:
    fill = run.status.ledger.fill
    if fill is None or fill < run.limits.fill:
        return None
    return {"severity": "error" if fill >= 1 else "warning", "fill": f"{fill:.0%}"}


RUNNING: Final[tuple[Entry[Running], ...]] = (
    Entry("E015", "sweeper_silent", "error",
        "The last pass of the sweeper {since}; it should run every {every} s.",
        "Workers run passes. {do}",
        "Lost tasks do not come back, and what waits is not sent, until a pass runs.", _silent),
    Entry("E016", "no_worker", "error",
        "No worker is alive: {waits}.",
        "Start workers, or read in their logs why they end.",
        "Nothing runs.", _no_worker),
    Entry("E017", "worker_lapsed", "error",
        "The lease of {name} (pid {pid}) ran out {since} ago, and no pass has declared it dead. It "
        "runs {runs}.",
        "It is dead, frozen or cut off. Start another worker, whose pass takes back its tasks.",
        "Its tasks wait until a pass runs.",
        lambda run: [
            _worker(one, since=span(-one.seconds_left))
            for one in run.status.workers
            if one.state == "lapsed"
        ]),
    Entry("E018", "recovery_stuck", "error",
        "{name} was declared dead {since} ago, and this is still not recovered: {held}.",
        f"{_LOGS}, pass_failed.",
        "These tasks wait for as long as this lasts.", _stuck),
    Entry("E019", "worker_stands", "error",
        "The main loop of {name} (pid {pid}) has not turned for {since}: it takes no task and "
        "obeys no command.",
        "Something holds its main process (a signal handler, a full disk, a broker that hangs). "
        "`py-spy dump` shows where. Restart it.",
        "The worker takes nothing. After STALL_SECONDS it counts as dead, and its tasks run again.",
        lambda run: [
            _worker(one, since=span(run.age(one.turned_at)))
            for one in run.alive
            if _is_standing(run, one)
        ]),
    Entry("E020", "worker_takes_nothing", "error",
        "{name} (pid {pid}) has {slots} free, but has begun nothing for {since}, while tasks wait "
        "in its queues: {queues}.",
        "Its connection to the broker may be dead. Restart it; what it holds is not lost.",
        "The slots of this worker are of no use. The others work on.", _takes_nothing),
    Entry("E021", "queue_without_consumer", "error",
        "{depth} messages wait in {name!r}, and no living worker consumes it.",
        "Start a worker with `-Q {name}`, or correct the route of whatever sends there.",
        "These messages wait for ever.",
        lambda run: [
            {"name": queue.name, "depth": queue.depth}
            for queue in run.status.queues
            if _has_no_consumer(run, queue)
        ]),
    Entry("E022", "broker_away", "error",
        "The broker does not answer: {problem}",
        "Check that the broker is up and that broker_url names it.",
        "Publishing fails, or its tasks wait in the ledger with OUTBOX. No message is fetched.",
        lambda run: run.status.broker_problem and {"problem": run.status.broker_problem}),
    Entry("E023", "poison", "error",
        "{sum} crashed or hung their worker too often and were put aside ({lately}): {names}. The "
        "last one: {cause} ({id}).",
        "`reliable show {id}` has the signal and the exit code. Mend the task, then replay these.",
        "They stay dead letters for DEAD_LETTER_SECONDS, and are deleted then.",
        lambda run: _buried(run, "task", "lost", "time_limit")),
    Entry("E024", "many_failures", "error",
        "{sum} failed for good ({lately}): {names}.",
        "`reliable dead-letters groups` shows the exceptions. Mend the largest group, then replay "
        "it. `reliable strike TASK` stops the task meanwhile.",
        "Beyond DEAD_LETTER_MAX the oldest letters are deleted.", _failures),
    Entry("E025", "dead_letters_trimmed", "error",
        "Dead letters are being deleted, as there are more than DEAD_LETTER_MAX ({most}): the last "
        "one {ago} ago, {trimmed} in all.",
        "Replay or discard the largest group (`reliable dead-letters groups`), or raise "
        "DEAD_LETTER_MAX.",
        "What is deleted cannot be replayed.", _trimmed),
    Entry("E026", "ledger_full", "error",
        "The ledger's Redis has used {fill} of its maxmemory.",
        "Raise maxmemory. Then see what fills it: long queues, results without an expiry, dead "
        "letters (DEAD_LETTER_MAX).",
        "At the limit publishing fails, and attempts wait with what they have done.", _full),
    Entry("W032", "worker_died", "warning",
        "{workers} died ({lately}): {names}. The last death: {ago} ago ({cause}); the worker was "
        "running {claims}.",
        "One death needs nothing. For several, see the kernel's log and the states of the pods: "
        "killed, out of memory, a lost machine or network. SIGTERM is no death.",
        "The tasks run again elsewhere.", _died),
    Entry("W034", "pass_failed", "warning",
        "The last pass failed on {failed} of the tasks and workers that it looked at.",
        f"{_LOGS}, not_handled.",
        "Each pass tries again. Until one succeeds, these tasks stay as they are.",
        lambda run: (failed := run.status.last_pass.report.get("failed")) and {"failed": failed}),
    Entry("W035", "sweeper_behind", "warning",
        "Passes have more to do than they can: the oldest task was due {late} before its turn.",
        "Raise SWEEP_BATCH, or see why so many tasks are due at one time, or lost.",
        "What waits or was lost comes late.", _behind),
    Entry("W036", "order_without_end", "warning",
        "An order without an end has been in force for {since}: {what} (by {by}). {held} waiting.",
        "`reliable resume {id}` ends it. Or give the order again with --for.",
        "What it stops waits for ever.", _forgotten),
    Entry("W037", "named_worker_missing", "warning",
        "Tasks wait for named workers of which none is alive: {names}. The longest has waited for "
        "{since}.",
        "Start such a worker (`-n NAME`), or end the tasks: `reliable revoke ID`.",
        "They wait for ever.", _nobody),
    Entry("W038", "long_run", "warning",
        "{runs} running for longer than {limit}, the first for {since}: {names}.",
        "If it hangs, end it (`reliable revoke ID --if-running kill`) and give its task a "
        "time_limit. If it may take so long, raise --max-run.",
        "An attempt that hangs keeps its slot and its object.", _long_runs),
    Entry("W039", "queue_old", "warning",
        "The oldest task in {name} has waited for {oldest}; {depth} messages wait there.",
        "Start more workers, or see what takes their slots (`reliable workers`), and whether "
        "operators have drained them (`reliable orders`).",
        "Users wait.", _old_queues),
    Entry("W040", "unprocessable", "warning",
        "{sum} that no worker could run put aside ({lately}): {names}.",
        "Workers lack the code of these tasks, or a publisher uses another format. Deploy the "
        "code, then replay them.",
        "They stay dead letters for DEAD_LETTER_SECONDS, and are deleted then.",
        lambda run: _buried(run, "message", "unprocessable")),
    Entry("W041", "dead_letters_fill", "warning",
        "There are {count} dead letters, and room for {most} (DEAD_LETTER_MAX).",
        "Replay or discard them (`reliable dead-letters groups`), or raise DEAD_LETTER_MAX.",
        "From DEAD_LETTER_MAX on the oldest letters of the largest group are deleted.",
        lambda run: not _trimmed(run)
        and run.status.tasks["dead"] >= _FILLED * run.status.config.dead_letter_max
        and {"count": run.status.tasks["dead"], "most": run.status.config.dead_letter_max}),
)  # fmt: skip

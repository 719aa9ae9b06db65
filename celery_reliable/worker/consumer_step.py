"""The consumer's step: it hooks our parts into the main loop, anew with every connection."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from celery import bootsteps
from celery.utils.functional import maybe_list
from celery.worker import state

from celery_reliable.attempt import fetched_requests, running_requests
from celery_reliable.broker import Queues, WorkerHooks, WorkerUnacked
from celery_reliable.compat import noted
from celery_reliable.compat.consumer import (
    cancel_by,
    command_by,
)
from celery_reliable.compat.pool import (
    n_greenlets_free,
    n_processes_up,
    task_ids_of,
    write_now,
)
from celery_reliable.ledger import TakeSteps
from celery_reliable.log import logger
from celery_reliable.pool import note_revoked, note_revoked_stamps, take_steps_of
from celery_reliable.worker import claims
from celery_reliable.worker.shifts import Shifts
from celery_reliable.worker.unclaimed import LongDeliveries
from celery_reliable.worker.worker_step import WorkerStep

__all__ = ["ConsumerStep"]

#: How often the main loop notes that it turns; STALL_SECONDS is compared with that.
_TURN_SECONDS = 1.0
#: How often the pool is asked for dead children.  A process closes its pipe a moment before it has
#: ended: then Celery looks too early, and not again until its own timer, every 5 s.
_CHILDREN_SECONDS = 0.5
#: How often the unacked hash is compared with what the worker holds.
_RECONCILE_SECONDS = 5.0
#: How often it is looked what orders of operators want to be given back, stopped or let go on.
_ORDERS_SECONDS = 0.5


def _revoke(
    step: WorkerStep, revoke: Any, state_: Any, task_id: Any, *args: Any, **kwargs: Any
) -> Any:
    """Celery's remote command, after which a thread lets the ledger forget what nobody runs.

    The revocation of a task that waits cannot be left to workers' memory, which ends with them.
    """
    note_revoked(maybe_list(task_id) or [])
    step.shifts.show()
    answer = revoke(state_, task_id, *args, **kwargs)
    step.passes.call_off(maybe_list(task_id) or [])
    return answer


def _revoke_stamped(
    step: WorkerStep, revoke: Any, state_: Any, headers: Any, *args: Any, **kwargs: Any
) -> Any:
    """Celery's remote command for all tasks with some stamps."""
    note_revoked_stamps()
    step.shifts.show()
    return revoke(state_, headers, *args, **kwargs)


def _limited(c: Any, step: WorkerStep, set_limit: Any, *args: Any, **kwargs: Any) -> Any:
    """Celery's remote command, after which all that begins goes by the task's new limit.

    Celery's own requests have the limits that the task had as its strategy was made.
    """
    answer = set_limit(*args, **kwargs)
    task = c.app.tasks.get(kwargs.get("task_name"))
    if task is not None:
        c.strategies[task.name] = task.start_strategy(c.app, c)
    step.special_tasks.forget()
    step.shifts.call_off()
    return answer


class ConsumerStep(bootsteps.StartStopStep):
    """Hooks our parts into the main loop, anew with every connection."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def include_if(self, c: Any) -> bool:
        """Whether the worker has our parts."""
        return noted(c.controller, "step") is not None

    def start(self, c: Any) -> None:
        """Begin to note that the loop turns, to look for dead children, and at the unacked hash."""
        step: WorkerStep = noted(c.controller, "step")
        command_by(c, "revoke", partial(_revoke, step))
        command_by(c, "revoke_by_stamped_headers", partial(_revoke_stamped, step))
        step.special_tasks.forget()
        for name in ("active", "query_task"):
            command_by(c, name, partial(_shown, step.shifts))
        command_by(c, "cancel_consumer", partial(_called_off, step.shifts))
        step.shifts.forget_dropped()
        step.shifts.call_off()
        for name in ("rate_limit", "time_limit"):
            command_by(c, name, partial(_limited, c, step))
        step.turned_at = time.monotonic()
        step.is_connecting = False
        _forget_unbegun(c)
        c.timer.call_repeatedly(_TURN_SECONDS, self._turn, (c, step))
        # Without an event loop billiard looks by a thread of its own, and may not be called by two.
        if step.pool_name == "prefork" and c.hub is not None:
            c.timer.call_repeatedly(_CHILDREN_SECONDS, c.pool.maintain_pool)
        step.orders.begin(c)
        c.timer.call_repeatedly(_ORDERS_SECONDS, self._heed, (c, step))
        step.unprocessable.install(c)
        if step.pool_name in ("solo", "thread"):
            cancel_by(c, _let_run)
        if step.unacked_name:
            unacked = _unacked(c, step)
            c.timer.call_repeatedly(_RECONCILE_SECONDS, self._reconcile, (c, step, unacked))
        if not step.reliable.is_redis_broker:
            # By the main loop, whose channel it is; the timer may be a thread.
            long = LongDeliveries(c, step.claims.give_up)
            c.timer.call_repeatedly(_TURN_SECONDS, c.call_soon, (long.look,))

    def stop(self, c: Any) -> None:
        """Note that the connection is lost; Celery itself cancels the timers of the old one."""
        step: WorkerStep = noted(c.controller, "step")
        step.is_connecting = True

    def _turn(self, c: Any, step: WorkerStep) -> None:
        step.turned_at = time.monotonic()
        step.seen.look(c)
        dispatcher = c.event_dispatcher
        if dispatcher is not None:
            # A monitor switches the events of tasks on and off.
            groups = dispatcher.groups
            step.process.sends_events = dispatcher.enabled and (not groups or "task" in groups)
        claims.note_kills()
        if step.unacked is not None:
            step.unacked.catch_up()

    def _heed(self, c: Any, step: WorkerStep) -> None:
        step.shifts.look()
        if step.process.orders.all or step.orders.to_end:
            step.shifts.show()
        if step.orders.look(c):
            # What was struck need not wait for the next pass.
            step.passes.end_orders()

    def _reconcile(self, c: Any, step: WorkerStep, unacked: WorkerUnacked) -> None:
        consumer = c.task_consumer
        if consumer is None or unacked.is_leaving:
            unacked.catch_up()
            return
        # A former connection's deliveries count while they run.  Celery has forgotten the others
        # (5.6 keeps them among its requests, and never runs them).
        held = consumer.channel.qos.held_tags | _running_tags()
        try:
            given = unacked.reconcile(consumer.channel, held)
        except consumer.channel.connection_errors as exc:
            logger.debug("deliveries_not_compared error=%s", exc)
            return
        if given:
            logger.warning("lost_deliveries_given_back count=%s", given)


def _forget_unbegun(c: Any) -> None:
    """Forget requests of a former connection that nobody has begun: Celery 5.6 keeps them, and
    never runs them.  They would count as busy.
    """
    handed = task_ids_of(c.pool)
    for request in set(fetched_requests()) - set(running_requests()):
        if request.id not in handed:
            state.task_ready(request)


def _let_run() -> None:
    """Stop nothing at a cold shutdown, in a pool that cannot stop a task.

    Celery would raise an error from its signal handler: into whatever the main loop does at that
    moment (it may have taken a message that it has not begun), or into a solo task's body.
    """
    logger.warning("tasks_run_to_their_end count=%s", len(state.active_requests))


def _unacked(c: Any, step: WorkerStep) -> WorkerUnacked:
    """Return the worker's unacked hash, which outlives connections, for a new one."""
    channel = c.task_consumer.channel
    if step.unacked is None:
        step.unacked = WorkerUnacked.opened(step.unacked_name, channel)
    # On this channel alone: what user code consumes on others is none of ours.
    channel.reliable_unacked = step.unacked
    step.unacked.is_leaving = step.is_leaving
    step.unacked.worker = _hooks(c, step)
    step.unacked.open(step.reliable.config.namespace)
    return step.unacked


def _hooks(c: Any, step: WorkerStep) -> WorkerHooks:
    """Return what the channel of the worker's consumer asks and tells the worker."""
    return WorkerHooks(
        holder=lambda: step.process.id,
        running_tags=_running_tags,
        is_held_back=lambda queue: step.process.order_against(queue) is not None,
        steps=partial(_steps, step),
        cold=lambda: step.special_tasks.names().cold,
        give_up=step.claims.give_up,
        before_leaving=step.claims.release,
        on_unreadable=step.unprocessable.bury_unreadable,
        idle_slots=partial(_idle_slots, c, step),
        hand_over=partial(write_now, c.pool, c.hub),
        may_work_off=step.shifts.may_begin,
        work_off=step.shifts.work_off,
        is_taken_by_pool=step.shifts.is_running,
    )


def _steps(step: WorkerStep, queues: Queues) -> TakeSteps:
    """Return what makes the main process's takings."""
    worker = step.process.id if step.reliable.is_delivered_from_ledger else ""
    return take_steps_of(step.reliable.ledger, queues, worker, step.process.pid)


def _idle_slots(c: Any, step: WorkerStep) -> int:
    """Return how many tasks could begin now.  New processes take a while; those that an autoscaler
    adds are asked for as something comes for them.
    """
    process = step.process
    n_free = n_greenlets_free(c.pool) if step.pool_name == "gevent" else None
    if n_free and state.should_stop not in (None, False):
        return 0
    if not process.surely_holds(process.id):
        # What it would be handed it could not claim: it is dead to the ledger, or cut off from it.
        return 0
    if n_free is not None:
        return n_free
    scaler, n_up = c.controller.autoscaler, n_processes_up(c.pool)
    if scaler is not None:
        slots = int(scaler.max_concurrency)
    else:
        slots = int(c.pool.num_processes) if n_up is None else n_up
    return max(0, slots - len(state.reserved_requests) - len(step.shifts))


def _shown(shifts: Shifts, command: Any, state_: Any, *args: Any, **kwargs: Any) -> Any:
    """Celery's remote command, which sees also what the pool's processes took by themselves."""
    shifts.show()
    return command(state_, *args, **kwargs)


def _called_off(shifts: Shifts, command: Any, *args: Any, **kwargs: Any) -> Any:
    """Celery's remote command, after which no process goes on taking as it was told before."""
    answer = command(*args, **kwargs)
    shifts.call_off()
    return answer


def _running_tags() -> set[str]:
    return {str(request.message.delivery_tag) for request in running_requests()}

"""The consumer's step: it hooks our parts into the main loop, anew with every connection."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from celery import bootsteps
from celery.utils.functional import maybe_list
from celery.worker import state

from celery_reliable.attempt import fetched_requests, running_requests
from celery_reliable.broker import WorkerHooks, WorkerUnacked
from celery_reliable.compat.consumer import (
    acknowledge_at_once,
    cancel_by,
    command_by,
)
from celery_reliable.compat.notes import noted
from celery_reliable.compat.pool import write_now
from celery_reliable.log import logger
from celery_reliable.worker import claims
from celery_reliable.worker.arrivals import Arrivals
from celery_reliable.worker.shifts import Shifts
from celery_reliable.worker.unbegun import LongDeliveries, Unbegun
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
    if step.shifts is not None:
        step.shifts.show()
        step.shifts.call_off()
    answer = revoke(state_, task_id, *args, **kwargs)
    step.passes.call_off(maybe_list(task_id) or [])
    return answer


def _limited(c: Any, step: WorkerStep, set_limit: Any, *args: Any, **kwargs: Any) -> Any:
    """Celery's remote command, after which all that begins goes by the task's new limit.

    Celery's own requests have the limits that the task had as its strategy was made.
    """
    answer = set_limit(*args, **kwargs)
    task = c.app.tasks.get(kwargs.get("task_name"))
    if task is not None:
        c.strategies[task.name] = task.start_strategy(c.app, c)
    if step.shifts is not None:
        step.shifts.heed_limits()
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
        if step.shifts is not None:
            for name in ("active", "query_task"):
                command_by(c, name, partial(_shown, step.shifts))
            step.shifts.forget_dropped()
            step.shifts.heed_limits()
        for name in ("rate_limit", "time_limit"):
            command_by(c, name, partial(_limited, c, step))
        step.turned_at = time.monotonic()
        step.is_connecting = False
        c.timer.call_repeatedly(_TURN_SECONDS, self._turn, (c, step))
        # Without an event loop billiard looks by a thread of its own, and may not be called by two.
        if step.pool_name == "prefork" and c.hub is not None:
            c.timer.call_repeatedly(_CHILDREN_SECONDS, c.pool.maintain_pool)
        step.orders.begin(c)
        c.timer.call_repeatedly(_ORDERS_SECONDS, self._heed, (c, step))
        step.unprocessable.install(c)
        if step.pool_name in ("solo", "thread"):
            cancel_by(c, _let_run)
        if step.pool_name == "solo" or c.hub is not None:
            acknowledge_at_once(c)
        if step.unacked_name:
            unacked = _unacked(c, step)
            c.timer.call_repeatedly(_RECONCILE_SECONDS, self._reconcile, (c, step, unacked))
            if step.unbegun is not None:
                c.timer.call_repeatedly(step.unbegun.every_seconds, step.unbegun.look, (c, unacked))
        if not step.reliable.is_redis_broker:
            # By the main loop, whose channel it is; the timer may be a thread.
            long = LongDeliveries(c)
            c.timer.call_repeatedly(_TURN_SECONDS, c.call_soon, (long.look,))

    def stop(self, c: Any) -> None:
        """Note that the connection is lost; Celery itself cancels the timers of the old one."""
        step: WorkerStep = noted(c.controller, "step")
        step.is_connecting = True
        if step.arrivals is not None:
            step.arrivals.forget(set(fetched_requests()) - set(running_requests()))

    def _turn(self, c: Any, step: WorkerStep) -> None:
        step.turned_at = time.monotonic()
        step.seen.look(c)
        dispatcher = c.event_dispatcher
        if dispatcher is not None:
            # A monitor switches the events of tasks on and off.
            groups = dispatcher.groups
            step.process.sends_events = dispatcher.enabled and (not groups or "task" in groups)
        claims.note_kills()
        # Repeats what could not be told while the ledger was away.
        step.openings.end()
        if step.unacked is not None:
            step.unacked.catch_up()

    def _heed(self, c: Any, step: WorkerStep) -> None:
        if step.unacked_name and c.task_consumer is not None:
            c.task_consumer.channel.end_paused_arrival()
        if step.shifts is not None:
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
        if step.arrivals is not None:
            held |= step.arrivals.tags
        try:
            consumer.channel.bring_back()
            given = unacked.reconcile(consumer.channel, held)
        except consumer.channel.connection_errors as exc:
            logger.debug("deliveries_not_compared error=%s", exc)
            return
        if given:
            logger.warning("lost_deliveries_given_back count=%s", given)


def _let_run() -> None:
    """Stop nothing at a cold shutdown, in a pool that cannot stop a task.

    Celery would raise an error from its signal handler: into whatever the main loop does at that
    moment (it may have popped a message and not yet filed it), or into a solo task's body.
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
    hooks = WorkerHooks(
        holder=lambda: step.process.id,
        running_tags=_running_tags,
        is_held_back=lambda queue: step.process.order_against(queue) is not None,
        opening=lambda delivery, payload: step.openings.begin(delivery.tag, payload),
        opened=step.openings.end,
        before_leaving=step.claims.release,
        on_unreadable=step.unprocessable.bury_unreadable,
    )
    if c.hub is None:
        # Nothing would ask again once a slot is free.
        return hooks
    # The tasks of other pools begin in the worker's own process.
    if step.reliable.is_delivered_from_ledger and step.pool_name == "prefork":
        # Kept beyond a connection: it knows the claims that were given up with that.
        arrivals = step.arrivals or Arrivals(c, step)
        arrivals.begin_connection()
        step.arrivals = arrivals
        hooks = replace(hooks, arrivals=arrivals)
    seconds = step.reliable.config.give_back_seconds
    if seconds:
        # Kept beyond a connection, as the pool is.
        step.unbegun = step.unbegun or Unbegun(
            c.controller, step.process, seconds, is_blocking=step.pool_name == "solo"
        )
        hooks = replace(hooks, room=step.unbegun.room)
    shifts = step.shifts
    if shifts is not None:
        hooks = replace(
            hooks,
            room=partial(_room, c.pool, step, shifts, hooks.room),
            work_off=partial(_work_off, c, step, shifts),
            is_taken_by_pool=shifts.is_running,
        )
    return replace(
        hooks,
        idle_slots=partial(_idle_slots, c.pool, step),
        is_supplied=partial(_is_supplied, c.pool),
        hand_over=partial(write_now, c.pool, c.hub),
    )


def _idle_slots(pool: Any, step: WorkerStep) -> int:
    busy = len(state.reserved_requests) + len(step.shifts or ())
    return max(0, int(pool.num_processes) - busy)


def _is_supplied(pool: Any) -> bool:
    """Whether as much waits as runs.  What comes can wait in its queue then, until something ends;
    its arrival would hold up the main loop when that has to begin what waits.
    """
    return len(state.reserved_requests) >= 2 * int(pool.num_processes)


def _room(
    pool: Any, step: WorkerStep, shifts: Shifts, otherwise: Callable[[], int | None]
) -> int | None:
    """Where processes take their own messages, nothing waits in the main process."""
    if shifts.may_begin():
        return _idle_slots(pool, step)
    return otherwise()


def _work_off(c: Any, step: WorkerStep, shifts: Shifts, channel: Any, n_waiting: int) -> None:
    shifts.work_off(channel, n_waiting, _idle_slots(c.pool, step))
    write_now(c.pool, c.hub)


def _shown(shifts: Shifts, command: Any, state_: Any, *args: Any, **kwargs: Any) -> Any:
    """Celery's remote command, which sees also what the pool's processes took by themselves."""
    shifts.show()
    return command(state_, *args, **kwargs)


def _running_tags() -> set[str]:
    return {str(request.message.delivery_tag) for request in running_requests()}

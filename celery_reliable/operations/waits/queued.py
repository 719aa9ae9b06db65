"""Why a queued task has not begun: where its message is, or that it is still to be sent."""

from __future__ import annotations

from celery_reliable.leases import nodename_of
from celery_reliable.ledger import Look
from celery_reliable.operations.order_words import in_words
from celery_reliable.operations.times import at
from celery_reliable.operations.waits.answer import Wait, Why
from celery_reliable.operations.waits.objects import for_object
from celery_reliable.operations.waits.seen import Seen
from celery_reliable.operations.waits.words import ago, queue_of, until
from celery_reliable.orders import OrderKind

__all__ = ["queued"]


def queued(look: Look, seen: Seen, now_ms: int) -> Why:
    """Say what a queued task waits for."""
    record, until_ms = look.record, look.due_ms or 0
    since_ms = max(record.published_ms, record.sent_ms)
    if record.stopping_on:
        return Why(
            Wait.STOPPING,
            f"An attempt of it was taken from {nodename_of(record.stopping_on)} ({record.cause}), "
            "and the next one begins when that worker has stopped it or is declared dead.",
            since_ms=since_ms,
            until_ms=until_ms,
            worker=record.stopping_on,
        )
    if record.is_revoked:
        return Why(
            Wait.CALLED_OFF,
            "It was revoked as it ran, and its attempt had no outcome: the next pass of the "
            "sweeper ends it.",
            since_ms=since_ms,
            until_ms=until_ms,
        )
    if look.has_to_wait:
        return Why(
            Wait.ALONE,
            "It ran in workers that died, with others, and nobody knows which of them it was: it "
            "waits to be run by a worker that runs no other such task, and is sent to one at "
            f"{until(until_ms, now_ms)}.",
            since_ms=since_ms,
            until_ms=until_ms,
            queue=seen.queue,
        )
    if record.is_unsent:
        if record.cause:
            lost = f"It was lost ({record.cause}), and"
        elif look.history and look.history[-1].what == "moved":
            lost = "It was moved, and"
        else:
            # It was stopped, or could not be sent: that is not noted.
            lost = "It"
        only = seen.named.only if seen.named is not None else ()
        where = f"a worker of {', '.join(map(repr, only))}" if only else queue_of(seen)
        return Why(
            Wait.RESEND,
            f"{lost} waits to be sent to {where} at {until(until_ms, now_ms)}.",
            since_ms=since_ms,
            until_ms=until_ms,
            queue=seen.queue,
        )
    waiting_for = "" if look.rate_key else look.waiting_for
    if (waiting_for or seen.waits_for_object) and (seen.eta_ms or waiting_for):
        return for_object(look, seen, now_ms)
    return _sent(look, seen, now_ms, since_ms)


def _sent(look: Look, seen: Seen, now_ms: int, since_ms: int) -> Why:
    """Say where the message of a queued task is."""
    record = look.record
    again = f" Its last attempt was lost ({record.cause})." if record.cause else ""
    if seen.fetched_by:
        where = f"{nodename_of(seen.fetched_by)} has fetched it and not begun it"
        if seen.eta_ms:
            kind, until_ms = Wait.ETA, seen.eta_ms
            said = f"{where}: it begins at {until(seen.eta_ms, now_ms)}."
        else:
            kind, until_ms = Wait.FETCHED, 0
            said = (
                f"{where}: it waits for a free process there, unless it goes back to its queue "
                "before (GIVE_BACK_SECONDS)."
            )
        return Why(
            kind,
            said + again,
            since_ms=since_ms,
            until_ms=until_ms,
            queue=seen.queue,
            worker=seen.fetched_by,
        )
    if not seen.is_in_queue:
        due_ms = look.due_ms or 0
        return Why(
            Wait.RESEND,
            f"Its message is neither in {queue_of(seen)} nor with a worker: a pass of the sweeper "
            f"looks at it at {until(due_ms, now_ms)}, and sends it again.{again}",
            since_ms=since_ms,
            until_ms=due_ms,
            queue=seen.queue,
        )
    paused = [one for one in seen.orders if one.kind is OrderKind.PAUSE and one.names(seen.queue)]
    if seen.queue and paused:
        order = paused[0]
        return Why(
            Wait.ORDER,
            f"It waits in {queue_of(seen)}, from which nobody takes: {in_words(order)}.{again}",
            since_ms=since_ms,
            until_ms=order.until_ms,
            queue=seen.queue,
        )
    told = f"It waits in {queue_of(seen)} since {at(since_ms)} ({ago(now_ms, since_ms)})"
    if seen.before is not None:
        told += f", with {seen.before} before it"
    elif seen.depth is not None:
        told += f", among {seen.depth} that wait there"
    return Why(
        Wait.QUEUE,
        f"{told}.{again}",
        since_ms=since_ms,
        queue=seen.queue,
        before=seen.before,
        depth=seen.depth,
    )

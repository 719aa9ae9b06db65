"""kombu's connections and producers: which transport they keep, and what a batch does."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from kombu.exceptions import OperationalError

from celery_reliable.compat.relied import Kept, Name, Part, Used, relies_on

__all__ = ["OpenSwitch", "at_flush", "is_batching"]


@relies_on(
    Name(
        "kombu.connection:Connection.switch",
        takes=("conn_str",),
        used_by="kombu.connection:Connection.maybe_switch_next",
    ),
    Kept("kombu.connection:Connection._initial_params"),
    Used(by="kombu.connection:Connection.get_transport_cls", name="transport_cls"),
    part=Part.REDIS_BROKER,
)
class OpenSwitch:
    """Mixed into a connection. It may keep its transport as it goes on to the next URL of a list.

    Overrides ``Connection.switch`` and reads ``_initial_params``: kombu takes the transport from
    the scheme of that URL, whatever transport it was given.  Checked on kombu 5.7.0.  Without it a
    worker behind several Sentinels keeps what it is delivered as Celery alone does, as soon as it
    has once failed to connect.
    """

    def switch(self, conn_str: str) -> None:
        """Go on to another URL."""
        super().switch(conn_str)  # type: ignore[misc]
        given = self._initial_params["transport"]  # type: ignore[attr-defined]
        if self.keeps_transport(given, conn_str):
            self.transport_cls = given

    def keeps_transport(self, given: Any, url: str) -> bool:
        """Whether the transport *given* at first is that for *url* as well."""
        return False


_BATCH = "kombu.messaging:_ProducerBatch"

#: A call that waits for a flush: the id of its task, and what publishes it.
_Call = tuple[str, Callable[[bool], object]]


@relies_on(Kept("kombu.messaging:Producer._batch_local"), part=Part.PRODUCER)
def is_batching(producer: Any) -> bool:
    """Whether a batch of a producer is open in this thread.

    Reads ``Producer._batch_local``: kombu tells it to nobody.  Checked on kombu 5.7.0.  Without it
    a batch that is aborted has published the tasks of ours that were called in it.
    """
    return getattr(getattr(producer, "_batch_local", None), "current", None) is not None


@relies_on(
    Kept("kombu.messaging:Producer._batch_local"),
    Name("kombu.messaging:_ProducerBatchState.flush", used_by=f"{_BATCH}.flush"),
    Name("kombu.messaging:_ProducerBatchState.flush", used_by=f"{_BATCH}.__exit__"),
    Kept("kombu.messaging:_ProducerBatchState.aborted"),
    Kept("kombu.messaging:_ProducerBatchState.max_size"),
    part=Part.PRODUCER,
)
def at_flush(producer: Any, task_id: str, publish: Callable[[bool], object]) -> None:
    """Call *publish* when the producer's open batch is flushed, and never if that is aborted.

    It is told whether to retry: not once the broker or the ledger was away in the same flush.  A
    flush publishes all, then raises the first error, which names the other tasks that failed.  A
    batch that is full is flushed first; if that raises, this call is not kept.  Raises RuntimeError
    if the batch is aborted already, as kombu does.

    Replaces ``flush`` of the one object that kombu keeps for a batch: a transport has a place for
    commands there, and no producer has one for calls.  Checked on kombu 5.7.0.  Without it a batch
    that is aborted has published the tasks of ours that were called in it.
    """
    batch = producer._batch_local.current
    if batch.aborted:
        raise RuntimeError("Cannot publish through an aborted batch")
    waiting: deque[_Call] | None = vars(batch).get("reliable_waiting")
    if waiting is None:
        waiting = batch.reliable_waiting = deque()
        flush, left = batch.flush, waiting

        def flush_all() -> None:
            failed = {} if batch.aborted else _publish_all(left)
            try:
                flush()
            except Exception as exc:
                if not failed:
                    raise
                failed["those of no reliable task"] = exc
            if failed:
                raise _first_of(failed)

        batch.flush = flush_all
    if len(waiting) >= batch.max_size:
        batch.flush()
    waiting.append((task_id, publish))


def _publish_all(waiting: deque[_Call]) -> dict[str, Exception]:
    """Publish what waits, and return the errors by the ids of the tasks."""
    failed: dict[str, Exception] = {}
    is_away = False
    while waiting:
        task_id, publish = waiting.popleft()
        try:
            publish(not is_away)
        except Exception as exc:
            failed[task_id] = exc
            # Each of many would wait for the same server.
            is_away = is_away or isinstance(exc, OperationalError)
    return failed


def _first_of(failed: dict[str, Exception]) -> Exception:
    """Return the first error, which says what else failed."""
    first, *others = failed.values()
    message = first.args[0] if first.args else None
    # Python 3.10 has no notes.
    if others and isinstance(message, str):
        names = ", ".join(list(failed)[1:])
        first.args = (f"{message} In the same flush also failed: {names}", *first.args[1:])
    return first

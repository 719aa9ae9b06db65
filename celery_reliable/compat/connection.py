"""kombu's producers: what they do with a batch."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from kombu.exceptions import OperationalError

from celery_reliable.compat.relied import Kept, Name, Part, relies_on

__all__ = ["at_flush"]


_BATCH = "kombu.messaging:_ProducerBatch"

#: A call that waits for a flush: the id of its task, and what publishes it.
_Publish = Callable[[bool], object]
_Call = tuple[str, _Publish]


@relies_on(
    Kept("kombu.messaging:Producer._batch_local"),
    Name("kombu.messaging:_ProducerBatchState.flush", used_by=f"{_BATCH}.flush"),
    Name("kombu.messaging:_ProducerBatchState.flush", used_by=f"{_BATCH}.__exit__"),
    Kept("kombu.messaging:_ProducerBatchState.aborted"),
    Kept("kombu.messaging:_ProducerBatchState.max_size"),
    part=Part.PRODUCER,
)
def at_flush(producer: Any, task_id: str, prepare: Callable[[], _Publish]) -> bool:
    """Publish a task when the batch is flushed that this thread has opened on a producer, and never
    if the batch is aborted.  False, and nothing is done, if no batch is open.

    *prepare* is called at once, and what it returns at the flush.  That is told whether to retry:
    not once the broker or the ledger was away in the same flush.  A flush publishes all, then
    raises the first error, which names the other tasks that failed.  A batch that is full is
    flushed first; if that raises, this call is not kept.  Raises RuntimeError if the batch is
    aborted already, as kombu does.

    Reads ``Producer._batch_local``, and replaces ``flush`` of the one object that kombu keeps for a
    batch: a transport has a place for commands there, and no producer has one for calls.  Checked
    on kombu 5.7.0.  Without it a batch that is aborted has published the tasks of ours that were
    called in it.
    """
    batch = getattr(getattr(producer, "_batch_local", None), "current", None)
    if batch is None:
        return False
    if batch.aborted:
        raise RuntimeError("Cannot publish through an aborted batch")
    publish = prepare()
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
    return True


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

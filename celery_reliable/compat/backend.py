"""Celery's result backends: how a result is written; and how a Redis backend counts the members of
a chord, sends the body after the last, and subscribes to results.
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import Any

from celery.backends.redis import RedisBackend, ResultConsumer, SentinelBackend
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from celery_reliable.compat.relied import Name, Part, Used, has_all, relies_on

__all__ = [
    "CleaningBackend",
    "MarkingBackend",
    "chord_progress",
    "counts_chords",
    "run_errbacks",
    "subscribe_when_awaited",
]

_BASE = "celery.backends.base:Backend"
_KEYS = "celery.backends.base:BaseKeyValueStoreBackend"

_REDIS = "celery.backends.redis:RedisBackend"
_CONSUMER = "celery.backends.redis:ResultConsumer"
_APP = "celery.app.base:Celery"
_ASYNC = "celery.backends.asynchronous"
_WAITING = f"{_ASYNC}:BaseResultConsumer"


@relies_on(
    Name(
        f"{_BASE}._get_result_meta",
        takes=("result", "state", "traceback", "request"),
        used_by=f"{_KEYS}._store_result",
    ),
    part=Part.WORKER,
)
class MarkingBackend:
    """Mixed into the class of a backend that keeps results as texts.  A subclass returns in
    `more_fields` what is stored besides Celery's own fields.  The first field is the status.

    Overrides ``Backend._get_result_meta``, and calls it for what is stored with its settlement:
    Celery has a setting for fields of its own only, and shows what it stores to nobody.  Checked on
    Celery 5.6.3 and 5.7.0.  Without it a result does not name the attempt that stored it, and a
    lost attempt that had succeeded runs again, or stores its failure over that.
    """

    def _get_result_meta(
        self, result: Any, state: Any, traceback: Any, request: Any, *args: Any, **kwargs: Any
    ) -> Any:
        meta = super()._get_result_meta(  # type: ignore[misc]
            result, state, traceback, request, *args, **kwargs
        )
        more = self.more_fields(request)  # type: ignore[attr-defined]
        return {"status": meta["status"], **meta, **more}

    def result_meta(self, result: Any, state: str, request: Any) -> dict[str, Any]:
        """Return what is stored of an encoded result, without the task's id."""
        meta: dict[str, Any] = self._get_result_meta(result, state, None, request)
        return meta


@relies_on(
    Name(
        f"{_BASE}._call_task_errbacks",
        takes=("request", "exc", "traceback"),
        used_by=f"{_BASE}.mark_as_failure",
    ),
    part=Part.WORKER,
)
def run_errbacks(backend: Any, request: Any, exc: Any, traceback: Any) -> None:
    """Call the errbacks of a task that has failed.

    Calls ``Backend._call_task_errbacks``: Celery does so within ``mark_as_failure``, which is
    repeated until the failure is stored.  Checked on Celery 5.6.3 and 5.7.0.  Without it errbacks
    are called as often as somebody tries to store a failure, or never.
    """
    backend._call_task_errbacks(request, exc, traceback)


_CLEANUP = Name(f"{_REDIS}._chord_cleanup_script", used_by=f"{_REDIS}.on_chord_part_return")


# Celery 5.6 has no script for it.
@relies_on(
    *([_CLEANUP] if hasattr(RedisBackend, "_chord_cleanup_script") else []),
    part=Part.REDIS_RESULTS,
)
class CleaningBackend:
    """Mixed into the class of a Redis backend: the counts of a chord stay when the process is being
    ended as it sends the body, and a body that was sent does not fail as they stay.

    Overrides the script by which ``RedisBackend.on_chord_part_return`` removes the counts in a
    ``finally``.  Checked on Celery 5.7.0; 5.6.3 has no such script.  Without it a body whose counts
    could not be removed is told to have failed, and runs; and one whose process was ended is never
    sent.
    """

    @property
    def _chord_cleanup_script(self) -> Any:
        remove = super()._chord_cleanup_script  # type: ignore[misc]

        def unless_ended(*args: Any, **kwargs: Any) -> Any:
            leaving = sys.exc_info()[1]
            if leaving is None or isinstance(leaving, Exception):
                # Counts that were not removed expire.
                with suppress(RedisConnectionError, RedisTimeoutError):
                    return remove(*args, **kwargs)
            return None

        return unless_ended


def counts_chords(backend: Any) -> bool:
    """Whether a backend counts a chord's members as they end, and each of them only once."""
    return hasattr(backend, "_chord_zset")


@relies_on(
    Name(f"{_REDIS}._chord_zset", used_by=f"{_REDIS}.on_chord_part_return"),
    *(Used(f"{_REDIS}.on_chord_part_return", suffix) for suffix in (".j", ".s", ".t")),
    part=Part.REDIS_RESULTS,
)
def chord_progress(backend: Any, group: str) -> tuple[int, int] | None:
    """Return how many members of a chord were counted, and how many there are; None when its
    counters are gone, as its body was sent.

    Reads the keys of a Redis backend that end in ``.j``, ``.s`` and ``.t``, which Celery looks at
    in scripts of its own, and ``RedisBackend._chord_zset``.  Checked on Celery 5.6.3 and 5.7.0.
    Without it a chord waits for ever when a member's process dies as it ends, or that which was to
    send the body.
    """
    counted_key, size_key, added_key = (
        backend.get_key_for_group(group, suffix) for suffix in (".j", ".s", ".t")
    )
    client = backend.client
    size = client.get(size_key)
    if size is None:
        return None
    n_counted = client.zcard(counted_key) if backend._chord_zset else client.llen(counted_key)
    return int(n_counted), int(size) + int(client.get(added_key) or 0)


#: So many stored results are asked for in one command at most.
_MOST_KEYS = 1000
#: A second after the last subscription, and then ever more rarely, stored results are asked for.
_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 60.0


class AwaitedConsumer(ResultConsumer):
    """Celery's consumer, which subscribes to a result when somebody waits for it, and not when its
    task is published.

    The waiting thread subscribes as it begins to read, or at once while another thread reads.
    Celery then asks for a result that is stored already.  A result may be stored right after that
    and before the server has subscribed us, so `drain_events` asks again, from time to time.
    """

    def begin(self) -> None:
        """Make what the methods need, for an object that still has the class of Celery's."""
        #: The tasks whose results are waited for, and not yet subscribed to.
        self._left: set[Any] = set()
        #: One for each thread or greenlet that reads just now.
        self._readers: list[None] = []
        self._pause, self._ask_at = 0.0, 0.0

    def consume_from(self, task_id: Any) -> None:
        """Subscribe to the result of a task if somebody waits for it."""
        if self._is_awaited(task_id):
            self._left.add(task_id)
            # Whoever begins to read after this subscribes to it.
            if self._readers:
                self._subscribe()

    def _is_awaited(self, task_id: Any) -> bool:
        return any(waiting.get(task_id) for waiting in self._pending_results)

    def _subscribe(self) -> None:
        if not self._left:
            return
        # Results that are awaited already do not wait longer for those that come after them.
        ask_at = time.monotonic() + _FIRST_PAUSE_SECONDS
        self._ask_at = min(ask_at, self._ask_at) if self.subscribed_to else ask_at
        self._pause = _FIRST_PAUSE_SECONDS
        # Another thread may take one of them.
        with suppress(KeyError):
            while self._left:
                super().consume_from(self._left.pop())

    def cancel_for(self, task_id: Any) -> None:
        """Subscribe to the result of a task no longer."""
        self._left.discard(task_id)
        # Celery 5.6 would send a command for what it never subscribed to.
        if self.backend.get_key_for_task(task_id) in self.subscribed_to:
            super().cancel_for(task_id)

    def on_wait_for_pending(self, result: Any, **kwargs: Any) -> None:
        """Ask for results that are stored already, once they are subscribed to."""
        self._subscribe()
        super().on_wait_for_pending(result, **kwargs)

    def drain_events(self, timeout: float | None = None) -> None:
        """Read what has come, for *timeout* seconds at most."""
        self._readers.append(None)
        try:
            self._subscribe()
            super().drain_events(timeout)
        finally:
            self._readers.pop()
        if self.subscribed_to and time.monotonic() >= self._ask_at:
            self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)
            self._ask_at = time.monotonic() + self._pause
            self._ask(list(self.subscribed_to))

    def _ask(self, keys: list[Any]) -> None:
        for first in range(0, len(keys), _MOST_KEYS):
            with self.reconnect_on_error():
                for stored in self.backend.client.mget(keys[first : first + _MOST_KEYS]):
                    if stored:
                        self.on_state_change(self.backend.decode_result(stored), None)


@relies_on(
    Name(
        f"{_CONSUMER}.consume_from",
        takes=("task_id",),
        used_by=f"{_ASYNC}:AsyncBackendMixin._add_pending_result",
    ),
    Name(f"{_CONSUMER}.on_wait_for_pending", used_by=f"{_WAITING}._wait_for_pending"),
    Name(f"{_CONSUMER}.drain_events", used_by=f"{_ASYNC}:Drainer.drain_events_until"),
    Used(_CONSUMER, "subscribed_to"),
    Used(_WAITING, "_pending_results"),
    Name(f"{_APP}._get_backend", used_by=f"{_APP}.backend"),
    Name(f"{_APP}._backend", used_by=f"{_APP}.backend"),
    part=Part.PRODUCER,
    is_promise=False,
)
def subscribe_when_awaited(app: Any) -> None:
    """Let an app subscribe to results in a Redis when somebody waits for them.  A backend of
    somebody else's class is left as it is.

    Celery subscribes at each call, and has no setting for it.  Replaces ``Celery._get_backend`` of
    this app, as a backend is made when it is first used and for each thread, and changes the class
    of its ``result_consumer``, which reads ``_pending_results``: other apps keep Celery's.  Checked
    on Celery 5.6.3 and 5.7.0.  Without it each call subscribes to its result, as with Celery alone,
    and costs its caller a third more.
    """
    if not has_all(subscribe_when_awaited):
        return
    make = app._get_backend

    def get_backend() -> Any:
        return _awaited(make())

    app._get_backend = get_backend
    if app._backend is not None:
        _awaited(app._backend)


def _awaited(backend: Any) -> Any:
    consumer: Any = getattr(backend, "result_consumer", None)
    if type(backend) in (RedisBackend, SentinelBackend) and type(consumer) is ResultConsumer:
        # In this order: another thread may be publishing with this backend.
        AwaitedConsumer.begin(consumer)
        consumer.__class__ = AwaitedConsumer
    return backend

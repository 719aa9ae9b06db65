"""Celery's result consumer of a Redis: when it subscribes to a result."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any
from uuid import UUID

from celery.backends.redis import RedisBackend, ResultConsumer, SentinelBackend

from celery_reliable.compat.relied import Kept, Name, Part, has_all, relies_on

__all__ = ["subscribe_when_awaited"]

_APP = "celery.app.base:Celery"
_ASYNC = "celery.backends.asynchronous"
_MIXIN = f"{_ASYNC}:AsyncBackendMixin"
_BASE = f"{_ASYNC}:BaseResultConsumer"
_CONSUMER = "celery.backends.redis:ResultConsumer"

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

    def on_state_change(self, meta: Any, message: Any) -> None:
        """Give a result to those who wait for it, also by a UUID: its task has the UUID's text."""
        same = None
        with suppress(ValueError):
            same = UUID(str(meta.get("task_id")))
        if same is not None and meta["task_id"] != same and self._is_awaited(same):
            super().on_state_change({**meta, "task_id": same}, message)
        super().on_state_change(meta, message)


@relies_on(
    Name(f"{_CONSUMER}.consume_from", takes=("task_id",), used_by=f"{_MIXIN}._add_pending_result"),
    Name(f"{_CONSUMER}.on_wait_for_pending", used_by=f"{_BASE}._wait_for_pending"),
    Name(f"{_CONSUMER}.drain_events", used_by=f"{_ASYNC}:Drainer.drain_events_until"),
    Kept(f"{_CONSUMER}.subscribed_to"),
    Kept(f"{_BASE}._pending_results"),
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

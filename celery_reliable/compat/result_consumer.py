"""Celery's result consumer of a Redis: when it subscribes to a result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache
from typing import Any
from uuid import UUID

from celery.backends import redis as celery_redis
from celery.backends.base import pending_results_t
from celery.backends.redis import RedisBackend, ResultConsumer, SentinelBackend
from kombu.utils.encoding import bytes_to_str
from redis.client import PubSub

from celery_reliable.compat.relied import Behaviour, Kept, Name, Part, has_all, relies_on

__all__ = ["AwaitedConsumer", "subscribe_when_awaited"]

_APP = "celery.app.base:Celery"
_ASYNC = "celery.backends.asynchronous"
_MIXIN = f"{_ASYNC}:AsyncBackendMixin"
_BASE = f"{_ASYNC}:BaseResultConsumer"
_CONSUMER = "celery.backends.redis:ResultConsumer"
_PUBSUB = "redis.client:PubSub"

#: So many stored results are asked for in one command at most.
_MOST_KEYS = 1000


@relies_on(
    Name(f"{_PUBSUB}.execute_command", used_by=f"{_PUBSUB}.subscribe"),
    Name(f"{_PUBSUB}.handle_message", takes=("response",), used_by=f"{_PUBSUB}.get_message"),
    Behaviour("a PubSub has a __dict__", lambda: "__slots__" not in vars(PubSub)),
    part=Part.PRODUCER,
    is_promise=False,
)
class ToldPubSub:
    """Mixed into the class of redis-py's PubSub: tells a consumer of each subscription.

    Overrides ``PubSub.execute_command`` and ``PubSub.handle_message``: redis-py subscribes anew by
    itself when it has connected anew, and says so to nobody.  Checked on redis-py 6.4.0 and 8.1.0.
    Without it each call subscribes to its result, as with Celery alone.
    """

    consumer: AwaitedConsumer

    def execute_command(self, *args: Any) -> Any:
        """Send a command."""
        if args[0] == "SUBSCRIBE":
            # Before it is sent: another thread may read the reply.
            self.consumer.subscribing(args[1:])
        return super().execute_command(*args)  # type: ignore[misc]

    def handle_message(self, response: Any, *args: Any, **kwargs: Any) -> Any:
        """Make a message of what was read."""
        if isinstance(response, list) and bytes_to_str(response[0]) == "subscribe":
            self.consumer.has_subscribed(response[1])
        return super().handle_message(response, *args, **kwargs)  # type: ignore[misc]


@cache
def _told(own: Any) -> Any:
    return type(own.__name__, (ToldPubSub, own), {})


@relies_on(
    Name(f"{_CONSUMER}.consume_from", takes=("task_id",), used_by=f"{_MIXIN}._add_pending_result"),
    Name(f"{_CONSUMER}.consume_from", used_by="celery.backends.redis:RedisBackend.on_task_call"),
    Name(f"{_CONSUMER}.cancel_for", takes=("task_id",), used_by=f"{_MIXIN}.on_result_fulfilled"),
    Name(
        f"{_CONSUMER}.drain_events",
        takes=("timeout",),
        used_by=f"{_ASYNC}:Drainer.drain_events_until",
    ),
    Name(f"{_CONSUMER}.drain_events", used_by=f"{_ASYNC}:greenletDrainer.run"),
    Name(
        f"{_BASE}.drain_events_until",
        takes=("p", "timeout", "on_interval"),
        used_by=f"{_BASE}._wait_for_pending",
    ),
    Name(f"{_CONSUMER}.on_state_change", takes=("meta", "message")),
    Name(f"{_BASE}.reconnect_on_error", used_by=f"{_CONSUMER}._consume_from"),
    Name(f"{_CONSUMER}._pubsub", used_by=f"{_CONSUMER}.start"),
    Name(f"{_CONSUMER}._pubsub", used_by=f"{_CONSUMER}._reconnect_pubsub"),
    Kept(f"{_CONSUMER}.subscribed_to"),
    Kept(f"{_CONSUMER}._get_key_for_task"),
    Kept(f"{_CONSUMER}._decode_result"),
    Kept(f"{_BASE}._pending_results"),
    Behaviour(
        "a consumer that locks its subscriptions does so by _locked",
        lambda: hasattr(ResultConsumer, "_locked") or not hasattr(celery_redis, "threading"),
    ),
    Behaviour(
        "who waits for results is kept by their tasks' ids, the strong and the weak",
        lambda: pending_results_t._fields == ("concrete", "weak"),
    ),
    part=Part.PRODUCER,
    is_promise=False,
)
class AwaitedConsumer(ResultConsumer):
    """Celery's consumer, which subscribes to a result when somebody waits for it, and not when its
    task is published.

    What waits is subscribed to together, as soon as anybody reads, and at once while somebody does.
    A result may have been stored before that: it is asked for when the server has confirmed the
    subscription, also after a new connection.

    Overrides ``consume_from``, ``cancel_for``, ``drain_events``, ``drain_events_until``,
    ``on_state_change`` and ``_pubsub`` of ``ResultConsumer``: Celery subscribes at each call, and
    has no setting for it.
    Checked on Celery 5.6.3 and 5.7.0.  Without it each call subscribes to its result, as with
    Celery alone.
    """

    def begin(self) -> None:
        """Make what the methods need, for an object that still has the class of Celery's."""
        #: The keys of results that are waited for, and not yet subscribed to.
        self._left: set[Any] = set()
        #: One for each thread or greenlet that reads just now.
        self._readers: list[None] = []
        #: The keys that one command subscribes to, by the last of them.
        self._subscribing: dict[str, tuple[Any, ...]] = {}
        #: What is subscribed to by now, and was not asked for since.
        self._unasked: list[tuple[Any, ...]] = []

    @property
    def _pubsub(self) -> Any:
        return self.__dict__.get("_pubsub")

    @_pubsub.setter
    def _pubsub(self, pubsub: Any) -> None:
        if pubsub is not None and not isinstance(pubsub, ToldPubSub):
            self._subscribing = {}
            pubsub.consumer = self
            own: Any = type(pubsub)
            pubsub.__class__ = _told(own)
        self.__dict__["_pubsub"] = pubsub

    def consume_from(self, task_id: str) -> None:
        """Subscribe to the result of a task if somebody waits for it."""
        if not self._is_awaited(task_id):
            # It is being published.
            return
        key = self._get_key_for_task(task_id)
        if key in self.subscribed_to:
            super().consume_from(task_id)
            return
        self._left.add(key)
        # Whoever begins to read after this takes it up.
        if self._readers:
            self._take_up()

    def _is_awaited(self, task_id: Any) -> bool:
        return any(waiting.get(task_id) for waiting in self._pending_results)

    def on_state_change(self, meta: Any, message: Any) -> None:
        """Give a result to those who wait for it, also by a UUID: its task has the UUID's text."""
        same = None
        with suppress(ValueError):
            same = UUID(str(meta.get("task_id")))
        if same is not None and meta["task_id"] != same and self._is_awaited(same):
            super().on_state_change({**meta, "task_id": same}, message)
        super().on_state_change(meta, message)

    def cancel_for(self, task_id: str) -> None:
        """Subscribe to the result of a task no longer."""
        key = self._get_key_for_task(task_id)
        self._left.discard(key)
        if key in self.subscribed_to:
            super().cancel_for(task_id)

    def drain_events(self, timeout: float | None = None) -> None:
        """Read what has come, for *timeout* seconds at most."""
        self._readers.append(None)
        try:
            self._take_up()
            super().drain_events(timeout)
        finally:
            self._readers.pop()
        self._ask()

    def drain_events_until(
        self, p: Any, timeout: float | None = None, on_interval: Any = None
    ) -> Iterator[None]:
        """Read what comes until a promise is kept."""
        if p.ready:
            # Celery 5.6 would read once more, and nothing comes that was not subscribed to.
            yield
            return
        yield from super().drain_events_until(p, timeout=timeout, on_interval=on_interval)

    def _take_up(self) -> None:
        """Subscribe to what was left."""
        if not self._left and self._pubsub is not None:
            return
        with self._exclusively():
            keys = set(self._left)
            # In this order: what is cancelled meanwhile is found in one or the other.
            self.subscribed_to.update(keys)
            self._left.difference_update(keys)
            if self._pubsub is None:
                # Without one, Celery's sleeps instead of waiting for the first subscription.
                self._pubsub = self.backend.client.pubsub(ignore_subscribe_messages=True)
                keys |= self.subscribed_to
            if not keys:
                return
            try:
                with self.reconnect_on_error():
                    self._pubsub.subscribe(*keys)
            except BaseException:
                self.subscribed_to.difference_update(keys)
                self._left |= keys
                raise

    def _exclusively(self) -> AbstractContextManager[Any]:
        # Celery 5.6 has no lock.
        locked: Any = getattr(self, "_locked", nullcontext)
        found: AbstractContextManager[Any] = locked()
        return found

    def subscribing(self, keys: tuple[Any, ...]) -> None:
        """Note which keys a command subscribes to."""
        self._subscribing[bytes_to_str(keys[-1])] = keys

    def has_subscribed(self, key: Any) -> None:
        """Note that the server has subscribed us to a key."""
        keys = self._subscribing.pop(bytes_to_str(key), None)
        if keys is not None:
            self._unasked.append(keys)

    def _ask(self) -> None:
        """Ask for the results that may have been stored before they were subscribed to."""
        while self._unasked:
            try:
                subscribed = self._unasked.pop()
            except IndexError:
                # Another thread has it.
                return
            keys = [key for key in subscribed if key in self.subscribed_to]
            for first in range(0, len(keys), _MOST_KEYS):
                with self.reconnect_on_error():
                    for stored in self.backend.client.mget(keys[first : first + _MOST_KEYS]):
                        if stored:
                            self.on_state_change(self._decode_result(stored), None)


@relies_on(
    Name(f"{_APP}._get_backend", used_by=f"{_APP}.backend"),
    Name(f"{_APP}._backend", used_by=f"{_APP}.backend"),
    Kept("celery.backends.redis:RedisBackend.result_consumer"),
    part=Part.PRODUCER,
    is_promise=False,
)
def subscribe_when_awaited(app: Any) -> None:
    """Let an app subscribe to results in a Redis when somebody waits for them.  A backend of
    somebody else's class is left as it is.

    Replaces ``Celery._get_backend`` of this app, as a backend is made when it is first used and for
    each thread, and changes the class of its ``result_consumer``: other apps keep Celery's.
    Checked on Celery 5.6.3 and 5.7.0.  Without it each call subscribes to its result, as with
    Celery alone.
    """
    if not all(has_all(one) for one in (ToldPubSub, AwaitedConsumer, subscribe_when_awaited)):
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
        # The setter lets a subscription that is there tell of what it subscribes to.
        consumer._pubsub = consumer._pubsub
    return backend

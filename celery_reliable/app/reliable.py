"""What the package has for each Celery app: its settings and its ledger."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from celery import Celery

from celery_reliable.app.location import ledger_of, place_in_ledger, scheme_of
from celery_reliable.compat.notes import note, noted
from celery_reliable.exceptions import ConfigurationError
from celery_reliable.ledger import Connector, Ledger, LivingWorkers
from celery_reliable.native_threads import socket_owner
from celery_reliable.settings import (
    REDIS_SCHEMES,
    ReliableConfig,
    sanitized_url,
)

if TYPE_CHECKING:
    from celery_reliable.findings import UnseenRows

__all__ = [
    "Framework",
    "Reliable",
    "real_app",
    "reliable_of",
]

T = TypeVar("T")

#: The note on an app that has its `Reliable`: the two are freed together.
_ATTRIBUTE = "own"
_made: WeakSet[Reliable] = WeakSet()
_lock = threading.Lock()


def _after_fork() -> None:
    """Free the locks that another thread of the main process held at the fork."""
    global _lock
    _lock = threading.Lock()
    for reliable in _made:
        reliable.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def real_app(app: Any) -> Any:
    """Return the app behind the proxy `current_app`.  An app is returned unchanged."""
    # A method that is got through the proxy is the app's own.
    return app.finalize.__self__


def reliable_of(app: Celery) -> Reliable:
    """Return the `Reliable` of *app*, which is made once.  This connects to nothing."""
    real = real_app(app)
    with _lock:
        found: Reliable | None = noted(real, _ATTRIBUTE)
        if found is None:
            found = Reliable(real)
            note(real, _ATTRIBUTE, found)
            _made.add(found)
        return found


class Framework:
    """What Django tells of a project; this is of one without Django."""

    def settings(self) -> Mapping[str, object] | None:
        """Return CELERY_RELIABLE, for an app that reads its settings under another namespace."""
        return None

    def connector_of(self, cache: str) -> Connector:
        """Return how the Redis of a cache is reached.  Raises ConfigurationError."""
        raise ConfigurationError(
            f"CACHE={cache!r} names a django-redis alias, but celery_reliable's Django part is not "
            "loaded. Add 'celery_reliable.contrib.django' to INSTALLED_APPS, or give REDIS_URL "
            "instead."
        )

    def drop_lost_connections(self) -> None:
        """Let databases be connected anew, as Celery does between tasks."""

    def unseen_rows(self) -> Sequence[UnseenRows]:
        """Ask the databases for rows with an open task at which nobody has looked for long.

        Raises what the databases raise.
        """
        return ()


class Reliable:
    """Settings and ledger of one app, each made when it is first asked for.

    A forked child makes connections of its own.
    """

    #: That of this process.
    framework = Framework()

    def __init__(self, app: Celery) -> None:
        self.app = app
        self._config: ReliableConfig | None = None
        self._made: dict[tuple[str, int], tuple[int, Any]] = {}
        #: For what is made once, also for the parts that are put into the app.
        self.mutex = threading.RLock()
        self._has_told = False

    def after_fork(self) -> None:
        """Free the mutex that another thread may have held at the fork."""
        self.mutex = threading.RLock()

    def close(self) -> None:
        """Close the connections of this process; they are made anew when asked for."""
        with self.mutex:
            for pid, made in self._made.values():
                if pid == os.getpid():
                    made.close()
            self._made.clear()

    def forget(self) -> None:
        """Forget the settings and whatever was made by them, after somebody changed them."""
        self.close()
        self._config = None
        for name in ("is_unprotected", "queues_at"):
            self.__dict__.pop(name, None)

    @property
    def config(self) -> ReliableConfig:
        """The settings.  Raises ConfigurationError, naming everything that is wrong with them."""
        if self._config is None:
            raw = self.app.conf.get("reliable")
            if raw is None:
                raw = self.framework.settings()
            names = ReliableConfig.names()
            # Written one by one, as Celery's own settings are, they would not be read; the error
            # says so.
            flat = [n for n in names if self.app.conf.get(f"reliable_{n.lower()}") is not None]
            self._config = ReliableConfig.from_mapping(raw, flat=flat)
        return self._config

    @property
    def broker_url(self) -> str:
        """The URL that workers consume from."""
        url = self.app.conf.broker_read_url or "amqp://"
        return str(url if isinstance(url, str) else ";".join(url))

    @property
    def project(self) -> tuple[str, str]:
        """The name of the app, and its broker without a password.  They tell it from other apps
        that share its ledger.
        """
        return str(self.app.main or ""), sanitized_url(self.broker_url)

    @property
    def is_redis_broker(self) -> bool:
        """Whether the broker is one that our transport can serve."""
        return scheme_of(self.broker_url) in REDIS_SCHEMES

    @cached_property
    def is_unprotected(self) -> bool:
        """Whether tasks are published and run as by Celery alone: the broker lives in this one
        process, which is for tests, and no ledger is named.  Raises ConfigurationError.
        """
        config = self.config
        scheme = scheme_of(self.broker_url)
        return scheme == "memory" and config.redis_url is None and not config.cache

    def tell_unprotected(self) -> None:
        """Warn, once, of what `is_unprotected` means."""
        if not self._has_told:
            from celery_reliable.findings import UNPROTECTED, log_finding

            self._has_told = True
            log_finding(UNPROTECTED.found(scheme=scheme_of(self.broker_url)))

    @cached_property
    def queues_at(self) -> str:
        """Where messages are sent to, if that is the ledger's own database; else empty.  There a
        message and its record are written in one step.  Raises ConfigurationError.
        """
        return place_in_ledger(self.app.conf, self.app.conf.broker_write_url, self.connector)

    @property
    def is_delivered_from_ledger(self) -> bool:
        """Whether workers fetch from the ledger's own database.  There a message is filed and
        claimed in one round trip.  Raises ConfigurationError.
        """
        return bool(place_in_ledger(self.app.conf, self.app.conf.broker_read_url, self.connector))

    @property
    def list_prefix(self) -> str:
        """What stands before a queue's name in the key of its list."""
        return str((self.app.conf.broker_transport_options or {}).get("global_keyprefix") or "")

    def connector(self) -> Connector:
        """Return how the ledger's Redis is reached.  Raises ConfigurationError if no setting says
        so.
        """
        if self.config.cache is not None:
            return self.framework.connector_of(self.config.cache)
        return ledger_of(self.app.conf, self.config, self.broker_url)

    @property
    def ledger(self) -> Ledger:
        """The ledger, for any thread of this process."""
        return self._of_this_process("ledger", self.own_ledger)

    @property
    def living(self) -> LivingWorkers:
        """The workers that a task can be sent to by their names."""
        return self._of_this_process("living", lambda: self.living_by(self.ledger))

    def living_by(self, ledger: Ledger) -> LivingWorkers:
        """Return the same, read with the connections of *ledger*."""
        prefix = self.list_prefix
        return LivingWorkers(
            ledger,
            str(self.app.main or ""),
            (lambda queue: prefix + queue) if self.queues_at else None,
        )

    def own_ledger(
        self,
        *,
        patience_seconds: float = 10.0,
        reply_timeout_seconds: float = 5.0,
        single: bool = False,
        is_for_operators: bool = False,
    ) -> Ledger:
        """Return a new ledger with connections of its own; the caller closes it.

        *is_for_operators*: it looks first whether it knows the format of its namespace.
        """
        return Ledger(
            self.connector(),
            self.config.namespace,
            patience_seconds=patience_seconds,
            reply_timeout_seconds=reply_timeout_seconds,
            single=single,
            keep_ended=self.config.keep_ended,
            sample_one_in=self.config.keep_ended_one_in,
            is_for_operators=is_for_operators,
        )

    def _of_this_process(self, name: str, make: Callable[[], T]) -> T:
        slot = (name, socket_owner())
        made = self._made.get(slot)
        if made is not None and made[0] == os.getpid():
            found: T = made[1]
            return found
        with self.mutex:
            made = self._made.get(slot)
            if made is None or made[0] != os.getpid():
                made = self._made[slot] = (os.getpid(), make())
            kept: T = made[1]
            return kept

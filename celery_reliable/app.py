"""What the package has for each Celery app: its settings, its ledger, and where that ledger is."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, TypeVar

from celery import Celery

from celery_reliable.exceptions import ConfigurationError
from celery_reliable.ledger import Connector, Ledger, LivingWorkers, connect
from celery_reliable.native_threads import socket_owner
from celery_reliable.settings import REDIS_SCHEMES, ReliableConfig, sanitized_url, split_urls

__all__ = [
    "Framework",
    "Reliable",
    "real_app",
    "reliable_of",
    "scheme_of",
]

#: The values of the setting broker_transport with which a redis:// URL means lists on that server,
#: and those with which a sentinel:// URL does.
_PLAIN = ("", "redis", "rediss", "celery_reliable.transport:Transport")
_BEHIND_SENTINEL = ("", "sentinel", "celery_reliable.transport:SentinelTransport")

T = TypeVar("T")


def scheme_of(url: str) -> str:
    """Return the scheme of a broker's URL."""
    return url.split("://", 1)[0]


def _ledger_of(conf: Any, config: ReliableConfig, broker_url: str) -> Connector:
    """Return how the ledger's Redis is reached, for an app with these settings.

    Raises ConfigurationError if no setting says so.
    """
    if config.redis_url is not None:
        return connect(config.redis_url, transport_options=conf.broker_transport_options)
    if scheme_of(broker_url) not in REDIS_SCHEMES:
        scheme = scheme_of(broker_url)
        raise ConfigurationError(
            f"The broker is {scheme}://, which cannot hold the ledger. Give CELERY_RELIABLE a "
            "REDIS_URL that names a Redis server which evicts nothing."
        )
    if len(split_urls(broker_url)) > 1 and not broker_url.startswith("sentinel://"):
        raise ConfigurationError(
            f"The broker is a list of servers, {sanitized_url(broker_url)!r}: kombu goes "
            "on to the next when one is away, and the ledger would stay with the first. Let "
            "Sentinel (sentinel://) say which server is the master, or give "
            "CELERY_RELIABLE a REDIS_URL, for a ledger that stays where it is."
        )
    return connect(
        broker_url,
        transport_options=conf.broker_transport_options,
        ssl=conf.broker_use_ssl,
    )


def _place_in_ledger(conf: Any, url: Any, ledger_connector: Callable[[], Connector]) -> str:
    """Return where a broker's URL points to, without a password, if that is the very database of
    the ledger; else empty.
    """
    if not isinstance(url, str) or scheme_of(url) not in REDIS_SCHEMES:
        return ""
    is_behind = scheme_of(url) == "sentinel"
    # kombu goes on to the next of a list; Sentinels name the same server.
    if (";" in url and not is_behind) or (
        (conf.broker_transport or "") not in (_BEHIND_SENTINEL if is_behind else _PLAIN)
    ):
        return ""
    there = connect(url, transport_options=conf.broker_transport_options, ssl=conf.broker_use_ssl)
    ledger = ledger_connector()
    if ledger.server is None or (there.server, there.db) != (ledger.server, ledger.db):
        return ""
    return there.shown


def real_app(app: Any) -> Any:
    """Return the app behind the proxy `current_app`.  An app is returned unchanged."""
    # A method that is got through the proxy is the app's own.
    return app.finalize.__self__


def reliable_of(app: Celery) -> Reliable:
    """Return the `Reliable` of *app*, which is made once.  This connects to nothing."""
    real = real_app(app)
    # The app holds it, so that both are freed together.  If two threads make one, the first counts.
    has: dict[str, Reliable] = vars(real)
    return has.get("reliable_own") or has.setdefault("reliable_own", Reliable(real))


class Framework:
    """What Django tells of a project; this is of one without Django."""

    def settings(self) -> Mapping[str, object] | None:
        """Return CELERY_RELIABLE, for an app that reads its settings under another namespace."""
        return None

    def drop_lost_connections(self) -> None:
        """Let databases be connected anew, as Celery does between tasks."""


class Reliable:
    """Settings and ledger of one app, each made when it is first asked for.

    A forked child makes connections of its own.
    """

    #: That of this process.
    framework = Framework()
    #: For what is made once, also for the parts that are put into an app.
    mutex = threading.RLock()

    def __init__(self, app: Celery) -> None:
        self.app = app
        #: What has connections, by its name, its process and `socket_owner`.
        self._made: dict[tuple[str, int, int], Any] = {}
        self._has_told = False

    def close(self) -> None:
        """Close the connections of this process; they are made anew when asked for."""
        with self.mutex:
            for (_, pid, _), made in self._made.items():
                if pid == os.getpid():
                    made.close()
            self._made.clear()

    def forget(self) -> None:
        """Forget the settings and whatever was made by them, after somebody changed them."""
        self.close()
        for name in ("config", "is_unprotected", "queues_at"):
            self.__dict__.pop(name, None)

    @cached_property
    def config(self) -> ReliableConfig:
        """The settings.  Raises ConfigurationError, naming everything that is wrong with them."""
        raw = self.app.conf.get("reliable")
        if raw is None:
            raw = self.framework.settings()
        # Written one by one, as Celery's own settings are, they would not be read; the error says
        # so.
        names = ReliableConfig.names()
        flat = [n for n in names if self.app.conf.get(f"reliable_{n.lower()}") is not None]
        return ReliableConfig.from_mapping(raw, flat=flat)

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
        return scheme == "memory" and config.redis_url is None

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
        return _place_in_ledger(self.app.conf, self.app.conf.broker_write_url, self.connector)

    @property
    def is_delivered_from_ledger(self) -> bool:
        """Whether workers take messages from the ledger's own database.  There one script takes a
        message and claims its task.  Raises ConfigurationError.
        """
        return bool(_place_in_ledger(self.app.conf, self.app.conf.broker_read_url, self.connector))

    @property
    def list_prefix(self) -> str:
        """What stands before a queue's name in the key of its list."""
        return str((self.app.conf.broker_transport_options or {}).get("global_keyprefix") or "")

    def connector(self) -> Connector:
        """Return how the ledger's Redis is reached.  Raises ConfigurationError if no setting says
        so.
        """
        return _ledger_of(self.app.conf, self.config, self.broker_url)

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

    def own_ledger(self, **how: Any) -> Ledger:
        """Return a new ledger with connections of its own; the caller closes it.

        *how*: options of `Ledger`, such as its patience.
        """
        return Ledger(
            self.connector(),
            self.config.namespace,
            keep_ended=self.config.keep_ended,
            sample_one_in=self.config.keep_ended_one_in,
            **how,
        )

    def _of_this_process(self, name: str, make: Callable[[], T]) -> T:
        slot = (name, os.getpid(), socket_owner())
        found: T | None = self._made.get(slot)
        if found is None:
            with self.mutex:
                found = self._made.get(slot) or self._made.setdefault(slot, make())
        return found


def _after_fork() -> None:
    """Replace the mutex: another thread of the main process may have held it at the fork."""
    Reliable.mutex = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)

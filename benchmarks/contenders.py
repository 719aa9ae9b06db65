"""Who is measured: the base of a task, its options, and the settings that these need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

__all__ = ["BASELINE", "CONTENDERS", "Contender"]

#: Who the others are compared with.
BASELINE = "stock-late"


def _nothing(lock_url: str) -> dict[str, Any]:
    return {}


def _singleton_settings(lock_url: str) -> dict[str, Any]:
    return {"singleton_backend_url": lock_url}


def _once_settings(lock_url: str) -> dict[str, Any]:
    settings = {"url": lock_url, "default_timeout": 3600}
    return {"ONCE": {"backend": "celery_once.backends.Redis", "settings": settings}}


def _apart_settings(lock_url: str) -> dict[str, Any]:
    # The same server under another name is another one, as far as the package can tell.
    return {"reliable": {"REDIS_URL": lock_url.replace("127.0.0.1", "localhost")}}


@dataclass(frozen=True)
class Contender:
    """One way to declare the same task, whose arguments are `number` and `body`."""

    name: str
    #: Where the base class is, as Celery writes it.
    base: str
    #: The distribution that it comes from.
    package: str
    options: Mapping[str, Any] = field(default_factory=dict)
    #: The app's settings, given the URL of a database for locks.
    settings: Callable[[str], dict[str, Any]] = _nothing

    def version(self) -> str | None:
        """The version of its package that is installed; None without one."""
        try:
            return metadata.version(self.package)
        except metadata.PackageNotFoundError:
            return None


_ALL = (
    Contender("stock-early", "celery:Task", "celery", {"acks_late": False}),
    Contender(BASELINE, "celery:Task", "celery", {"acks_late": True}),
    Contender(
        "singleton",
        "celery_singleton:Singleton",
        "celery-singleton",
        {"acks_late": True, "unique_on": ["number"]},
        _singleton_settings,
    ),
    Contender(
        "once",
        "celery_once:QueueOnce",
        "celery-once",
        {"acks_late": True, "once": {"keys": ["number"]}},
        _once_settings,
    ),
    Contender("reliable", "celery_reliable:ReliableTask", "celery-reliable"),
    Contender(
        "reliable-object",
        "celery_reliable:ReliableTask",
        "celery-reliable",
        {"object_id": "number"},
    ),
    Contender(
        "reliable-apart",
        "celery_reliable:ReliableTask",
        "celery-reliable",
        settings=_apart_settings,
    ),
)

#: By name, in the order in which they take turns.
CONTENDERS: dict[str, Contender] = {one.name: one for one in _ALL}

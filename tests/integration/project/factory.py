"""Builds the project's Celery app: in workers from their environment, in tests in-process."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib import import_module
from typing import Any

import redis
from celery import Celery, Task

from proof.traces.recording import record_if_asked
from tests.integration.project import tasks
from tests.support.effects import Effects

#: Those that add their tasks to every app but the stock one's.
MODULES = ("awkward", "canvases", "defined", "ends")


@dataclass(frozen=True)
class Settings:
    """What a process of the project is told; `to_environ` and `from_environ` carry it over.

    `reliable` is `app.conf.reliable`, `celery` are further settings of Celery by their lower-case
    names. With `stock` the same tasks have Celery's own base and `acks_late`: what the package
    is there to better.
    """

    broker_url: str
    effects_url: str
    result_url: str | None = None
    reliable: Mapping[str, Any] = field(default_factory=dict)
    celery: Mapping[str, Any] = field(default_factory=dict)
    stock: bool = False

    def to_environ(self) -> dict[str, str]:
        return {"PROJECT_SETTINGS": json.dumps(asdict(self))}

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Settings:
        return cls(**json.loads(environ["PROJECT_SETTINGS"]))


def create_app(settings: Settings) -> Celery:
    """A Celery app with the project's tasks, named `project.<function>`; not the current app."""
    record_if_asked()
    app = Celery(
        "project", broker=settings.broker_url, backend=settings.result_url, set_as_current=False
    )
    app.conf.broker_connection_retry_on_startup = True
    app.conf.worker_hijack_root_logger = True
    app.conf.reliable = _apart(settings) | dict(settings.reliable)
    app.conf.update(settings.celery)
    app.effects = Effects(redis.Redis.from_url(settings.effects_url))
    for name, (body, options) in tasks.RELIABLE.items():
        _register(app, name, body, **_base(settings, options))
    for name, body in tasks.PLAIN.items():
        _register(app, name, body)
    if not settings.stock:
        # They import the package.
        for name in MODULES:
            import_module(f"tests.integration.project.{name}").add_tasks(app)
    return app


def _apart(settings: Settings) -> dict[str, Any]:
    """With `--apart`: a ledger under another name of the server than queues and results, so that,
    as far as can be told, no two steps can be one.
    """
    scheme, _, place = settings.broker_url.partition("://127.0.0.1:")
    if not os.environ.get("TESTS_APART") or scheme != "redis":
        return {}
    return {"REDIS_URL": f"redis://localhost:{place}"}


def _base(settings: Settings, options: Mapping[str, Any]) -> dict[str, Any]:
    if settings.stock:
        return {"base": Task, "acks_late": True, "reject_on_worker_lost": True}
    from celery_reliable import ReliableTask

    return {"base": ReliableTask, **options}


def _register(app: Celery, name: str, body: Any, **options: Any) -> None:
    # Not shared: a shared task would turn up in the app of every later test of this process.
    app.task(body, bind=True, shared=False, name=f"project.{name}", **options)

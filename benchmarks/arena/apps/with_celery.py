"""Celery: as it is installed, with late acknowledgement, or with this package."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery
from celery.signals import worker_ready

from benchmarks.arena import body

body.wait_until_wanted()

_kind, _url = os.environ["ARENA_SYSTEM"], os.environ["ARENA_URL"]

app = Celery("arena", broker=f"{_url}/0", backend=f"{_url}/1")

#: Both keys are documented; 3 600 s, and a look each 100 s, are the defaults.
SHORTENED = {"visibility_timeout": 10, "unacked_restore_interval": 1, "unacked_restore_throttle": 1}

_options: dict[str, Any] = {}
if body.is_timed():
    app.conf.task_acks_late = _kind == "celery-late"
elif _kind != "celery":
    # With REMAP_SIGTERM=SIGQUIT: give back what is not done when the worker has to go.
    app.conf.worker_soft_shutdown_timeout = 2.0
    app.conf.worker_enable_soft_shutdown_on_idle = True
if _kind == "celery-late" and not body.is_timed():
    app.conf.update(
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        broker_transport_options=SHORTENED,
        result_backend_transport_options=SHORTENED,
        visibility_timeout=SHORTENED["visibility_timeout"],
    )
if _kind == "celery-reliable":
    from celery_reliable import ReliableTask

    _options = {"base": ReliableTask}
    if not body.is_timed():
        # Other applications on the same Redis may well have one.
        app.conf.broker_transport_options = SHORTENED


@app.task(name="arena.work", **_options)
def work(key: str, mode: str) -> None:
    """Do what the fault needs."""
    body.run(key, mode)


@worker_ready.connect
def _ready(**_: Any) -> None:
    body.is_ready()


def publish() -> None:
    """Publish what is told."""
    for job in body.jobs():
        work.apply_async(
            (job["key"], job["mode"]), task_id=job["key"], countdown=job.get("delay") or None
        )


if __name__ == "__main__":
    publish()

"""The project's app with a queue whose messages nobody acknowledges."""

from __future__ import annotations

from kombu import Queue

from tests.integration.project.app import app

__all__ = ["app"]

app.conf.task_queues = [Queue("celery", no_ack=True)]

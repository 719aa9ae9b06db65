"""The project in a worker that lives, turns and never asks for a message again."""

from __future__ import annotations

from typing import Any

from celery.signals import worker_ready

from tests.integration.project.app import app

__all__ = ["app"]


def _ask_no_more(sender: Any, **_: Any) -> None:
    channel = sender.task_consumer.channel
    channel.begin_to_wait = lambda timeout=None: None


worker_ready.connect(_ask_no_more, weak=False)

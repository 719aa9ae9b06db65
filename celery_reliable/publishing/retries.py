"""What a retry is told of the call that it retries."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

from celery import current_task

from celery_reliable.message import HEIR, NAMED
from celery_reliable.options import CALL

__all__ = ["carry_on"]

_CARRIED = (NAMED, CALL, HEIR)


def carry_on(name: str, message: Mapping[str, Any], options: MutableMapping[str, Any]) -> None:
    """Add our headers of the message that runs to the *options* of its retry.

    Celery passes all headers on, unless one of them is called "headers": then it passes on what is
    in that one.  Instrumentation puts its own there (https://github.com/celery/celery/issues/4875).

    *message*: the headers of the retry, as Celery has made them.
    """
    request = current_task.request if current_task else None
    if request is None or request.id != message.get("id") or current_task.name != name:
        return
    if message.get("retries", 0) <= (request.retries or 0):
        # It is published anew, or replaced.
        return
    found = {key: request.get(key) for key in _CARRIED if request.get(key) is not None}
    if found:
        options["headers"] = {**found, **(options.get("headers") or {})}

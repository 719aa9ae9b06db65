"""The options by which an operator says which tasks he means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from celery_reliable.operations.filters import Filter

__all__ = ["filter_of", "filter_options"]

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--task", help="Of tasks with this name; may be a pattern: 'billing.*'."),
    click.option("--queue", help="Sent to this queue; may be a pattern."),
    click.option("--worker", help="Run by this worker; may be a pattern: 'one@*'."),
    click.option("--cause", help="Lost for this cause, or a part of it: SIGKILL."),
    click.option("--older-than", "older_than_seconds", type=float, help="So many seconds old."),
    click.option("--newer-than", "newer_than_seconds", type=float, help="At most so old."),
    click.option("--text", help="With this in the name, the exception or the id."),
)


def filter_options(command: F) -> F:
    """Give a command the options; it takes them as keyword arguments for `filter_of`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def filter_of(given: dict[str, Any]) -> Filter:
    """Return what the options ask for."""
    return Filter(**given)

"""The options by which commands are told what is meant."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

import click

from celery_reliable.model import Reason
from celery_reliable.operations.filters import Filter
from celery_reliable.operations.words import parse_age, parse_time

__all__ = ["AGE", "TIME", "Duration", "filter_of", "filter_options", "group_option"]

F = TypeVar("F", bound=Callable[..., Any])


class Duration(click.ParamType):  # type: ignore[type-arg]
    """Seconds, or a number and a unit: 90, 15m, 2h, 3d; from *least* to *most* seconds."""

    name = "duration"

    def __init__(self, least: float = 0.0, most: float = math.inf) -> None:
        self._least, self._most = least, most

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """Return seconds."""
        try:
            seconds = value if isinstance(value, float) else parse_age(str(value))
        except ValueError as exc:
            self.fail(str(exc), param, ctx)
        if not self._least <= seconds <= self._most:
            most = "" if math.isinf(self._most) else f" and at most {self._most:g}"
            self.fail(f"It is at least {self._least:g} seconds{most}.", param, ctx)
        return seconds


class _Time(click.ParamType):  # type: ignore[type-arg]
    """A moment in ISO 8601; without a zone it is UTC."""

    name = "time"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        """Return milliseconds."""
        if isinstance(value, int):
            return value
        try:
            return parse_time(str(value))
        except ValueError as exc:
            self.fail(str(exc), param, ctx)


AGE, TIME = Duration(), _Time()

_OPTIONS = (
    click.option("--task", help="Of tasks with this name; a pattern as the shell has them."),
    click.option("--queue", help="Sent to this queue; a pattern."),
    click.option(
        "--reason",
        type=click.Choice([one.value for one in Reason]),
        help="Why it was put aside.",
    ),
    click.option("--exception", help="With an exception of this type; a pattern."),
    click.option("--cause", help="Lost by this: SIGKILL, 'out of memory', worker_lost."),
    click.option("--object-id", help="About this object."),
    click.option("--worker", help="That this worker ran; a pattern."),
    click.option("--older-than", "older_than_seconds", type=AGE, help="By age: 90, 15m, 2h."),
    click.option("--newer-than", "newer_than_seconds", type=AGE, help="By age."),
    click.option("--text", help="In name, exception or id."),
)

group_option = click.option("--group", default="", help="Only this group, by its id.")


def filter_options(command: F) -> F:
    """Give a command an option for each part of a filter."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def filter_of(given: Mapping[str, Any]) -> Filter:
    """Return the filter that the options say."""
    return Filter(**{one.name: given[one.name] for one in fields(Filter)})

"""The reference pages and the one of events, made of the code that they are about.

``python -m tests.support.reference`` writes them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from celery_reliable import ReliableConfig, ReliableTask
from celery_reliable.findings import TABLE
from celery_reliable.options import TaskOptions
from celery_reliable.options.calls import CALL_OPTIONS
from celery_reliable.options.definition import OPTIONS
from celery_reliable.settings import MAX_SECONDS
from tests.support import reference_doors as doors
from tests.support import states, telling
from tests.support.rst import as_code, filled, head, indented, one_line, prose, table

FOLDER = Path(__file__).parents[2] / "docs" / "reference"

_DAY_SECONDS = 86400


def settings() -> str:
    """The page of the settings."""
    docs = comments(ReliableConfig)
    rows = [
        [
            f"``{one.name.upper()}``",
            _default(one.default, one.name.endswith("_seconds")),
            _takes(one.metadata),
            docs[one.name],
        ]
        for one in fields(ReliableConfig)
    ]
    top = head(
        "Settings",
        """
        One dictionary: ``CELERY_RELIABLE`` in Django's settings, ``app.conf.reliable`` in a plain
        Celery app. Unknown names, values that cannot work together, and
        ``CELERY_RELIABLE_MAX_LOSSES`` and the like outside of the dictionary, are refused at the
        start, all at once, each with what to change.
        """,
    )
    return top + table(["name", "default", "takes", "meaning"], rows, "22 13 20 45")


def options() -> str:
    """The page of the options of a task, and of what a bound task has."""
    docs = comments(TaskOptions)
    rows = [[f"``{name}``", as_code(getattr(ReliableTask, name)), docs[name]] for name in OPTIONS]
    top = head(
        "Options of a task",
        """
        They are given to the decorator, ``@shared_task(base=ReliableTask, object_id="order_id")``,
        or stand in a class of yours that is derived from ``ReliableTask``. All of Celery's own
        options stay what they are.
        """,
    )
    notes = prose(
        """
        A misspelt option is warned of when the task is defined (``ConfigurationWarning``), a value
        that cannot work is refused: so is ``acks_late=False``, which asks for at most one run. For
        a task that must not run twice say ``max_losses=0``: when its process dies, it is a dead
        letter. The options are those of the task's class; what a body assigns to ``self``, which
        all executions in a process share, is yours: ``self.attempt = …`` hides the number below in
        that process, and nothing else changes by it. A class attribute ``attempt`` is refused.

        What skips, retries and fails, and what ``unique`` is for: :doc:`/guides/one-object`.
        """
    )
    calls = ", ".join(f"``{name}``" for name in CALL_OPTIONS)
    of_calls = (
        "These are options of one call, too, beside ``if_exists`` (:doc:`/guides/publishing`): "
        f"{calls}."
    )
    notes += f"\n{filled(of_calls, 96)}\n"
    bound = "\n".join(
        f"``self.{name}``\n{indented(prose(inspect.getdoc(of)))}" for name, of in _bound()
    )
    return (
        top
        + table(["name", "default", "meaning"], rows, "25 15 60")
        + f"\n{notes}\n"
        + f"In a bound task\n---------------\n\n{bound}\n"
        + prose(
            "The signal ``celery_reliable.signals.task_running_out`` comes in time to touch "
            "(:doc:`/events`)."
        )
    )


def findings() -> str:
    """The page of everything that can be wrong with a set-up or a running system."""
    top = head(
        "Findings",
        """
        Everything that a worker that starts, ``manage.py check``, ``doctor`` (:doc:`/doctor`) and
        ``status --check`` (:doc:`/operations-status`) can find. A code stays. Its letter is the
        worst level that the finding can have. A … stands for names and values of yours.
        """,
    )
    return top + "\n".join(_finding(one) for one in TABLE)


def _finding(one: Any) -> str:
    texts = (one.message, f"*If ignored:* {one.ignored}", f"*To mend:* {one.hint}")
    said = filled(" ".join(map(_shown, texts)), 100, "   ")
    return f"{one.code} ``{one.name}``\n{said}\n"


def _shown(text: str) -> str:
    """A text of a finding as RST, without its values."""
    text = re.sub(r"(?<!\{)\{\w+(?:![rs])?\}(?!\})", "…", text).format()
    return re.sub(r"`([^`]+)`", r"``\1``", text)


def comments(cls: type) -> dict[str, str]:
    """What the ``#:`` above each attribute of a class says of it."""
    found = re.findall(r"((?:^    #: .*\n)+)^    (\w+)\b", inspect.getsource(cls), re.MULTILINE)
    return {name: one_line(text.replace("    #: ", "")) for text, name in found}


def _bound() -> list[tuple[str, Any]]:
    names = ("attempt", "seconds_left", "touch")
    return [
        (f"{name}()" if name == "touch" else name, inspect.getattr_static(ReliableTask, name))
        for name in names
    ]


def _default(value: Any, is_seconds: bool) -> str:
    if is_seconds and value is not None and value >= _DAY_SECONDS:
        return f"``{value:.0f}`` ({value / _DAY_SECONDS:g} days)"
    return f"``{value:g}``" if type(value) in (int, float) else as_code(value)


def _takes(rule: Mapping[str, Any]) -> str:
    said = rule["rule"](object())
    # Ten years, which are there to catch milliseconds.
    said = said.replace(f" and at most {MAX_SECONDS:.0f}", "")
    said = re.sub(r"([\w+]+://)", r"``\1``", said)
    return said.removesuffix(" for the broker's")


PAGES: dict[str, Callable[[], str]] = {
    "../events.rst": telling.page,
    "api.rst": doors.api,
    "commands.rst": doors.commands,
    "findings.rst": findings,
    "metrics.rst": doors.metrics,
    "options.rst": options,
    "settings.rst": settings,
    "states.rst": states.page,
}


if __name__ == "__main__":
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), "utf-8")

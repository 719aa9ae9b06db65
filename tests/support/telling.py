"""The events of the package as a page, the code that reports each, and the lines of the log."""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from celery_reliable import events
from celery_reliable.events import IN_CELERY_EVENT, IN_LOG
from docs.rst import head, table

_ROOT = Path(__file__).parents[2]
_PACKAGE = _ROOT / "celery_reliable"

#: What the sender of a signal is, by the argument of the event.
_SENDERS = {
    "name": "the task's name", "task": "the task", "worker": "the worker's id", "app": "the app",
}  # fmt: skip

#: The levels of events that choose one.
_CHOSEN = {"task_buried": (logging.WARNING, logging.ERROR), "pass_finished": (logging.WARNING,)}


def tellers_of(event: events.Event[Any]) -> set[tuple[str, str]]:
    """The module and the function of each that reports the event."""
    return {
        (module, function)
        for module, function, called in _calls()
        if isinstance(called.func, ast.Attribute)
        and called.func.attr == event.name
        and ast.unparse(called.func) == f"events.{event.name}"
    }


def lines() -> dict[str, int]:
    """The lines that the log may have, by their first words; each with its highest level."""
    found: dict[str, int] = {}
    for one in events.DECLARED.values():
        found[one.name] = max(_levels_of(one))
    for _, _, called in _calls():
        of, _, method = ast.unparse(called.func).rpartition(".")
        text = next((one for one in called.args if isinstance(one, ast.Constant)), None)
        if ast.unparse(called.func) == "logged_failures":
            of, method = "logger", "error"
        if of == "logger" and text is not None and re.match(r"[a-z_]+( |$)", str(text.value)):
            level = getattr(logging, method.upper()) if method != "log" else logging.WARNING
            name = str(text.value).partition(" ")[0]
            found[name] = max(found.get(name, 0), level)
    return found


def _levels_of(event: events.Event[Any]) -> tuple[int, ...]:
    return _CHOSEN[event.name] if callable(event.level) else (event.level,)


def page() -> str:
    """The page that lists the events."""
    top = head(
        "Events",
        """
        Each event has a signal of ``celery_reliable.signals``, an event of Celery's (``celery
        worker -E``), or a note in the ledger, which ``celery -A proj reliable events`` and the
        desk show. Most have a line in the log besides. :doc:`runbook-log` has all lines of the log
        that ask something of you.

        All lines come from the logger ``celery_reliable``, as ``name key=value …``. Each is one
        line, and none has the password of a URL. A task is ``id`` in the log, ``task_id`` in a
        signal and ``uuid`` in an event of Celery's. A signal has the name of the line. An event of
        Celery's has it too, with dashes, or the name that is given. Celery's events of tasks have
        ``name`` besides. Signals and events may get lost, and may come twice. The first to have an
        alarm on is ``task_buried``: a task is a dead letter.

        With events on, Flower and other monitors receive Celery's own ``task-failed`` also if the
        process died that would have sent it. Monitors show the names of our events as a task's
        state until the next of Celery's own that counts for more: ``LOST``, then ``RECOVERED``,
        then ``SUCCESS`` or ``FAILURE``.

        A *note* has the name of the line and these fields. A note may get lost. No note has an
        argument of a task, or the text of an exception, which may have one.
        """,
    )
    titles = ["event", "level", "fields", "signal", "Celery's event", "note", "when"]
    return top + table(titles, map(_row, events.DECLARED.values()), "18 8 16 13 13 12 20")


@cache
def _calls() -> list[tuple[str, str, ast.Call]]:
    return [*_read_calls()]


def _read_calls() -> Iterator[tuple[str, str, ast.Call]]:
    for path in sorted(_PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(_ROOT).with_suffix("").parts).removesuffix(".__init__")
        for function, node in _within(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call):
                yield module, function, node


def _within(node: ast.AST, function: str = "") -> Iterator[tuple[str, ast.AST]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _within(child, child.name)
        else:
            yield function, child
            yield from _within(child, function)


def _row(one: events.Event[Any]) -> list[str]:
    level = " or ".join(logging.getLevelName(each).lower() for each in _levels_of(one) if each)
    signal, celery_event = "", ""
    if one.signal is not None:
        signal = f"{_code(one.of_signal)}; sender: {_SENDERS[one.sender]}"
    if one.celery_kind:
        celery_event = _code(one.of_celery_event, IN_CELERY_EVENT)
        if one.celery_kind != one.name.replace("_", "-"):
            celery_event = f"``{one.celery_kind}``: {celery_event}"
    return [
        f"``{one.name}``", level, _code(one.fields, IN_LOG) if level else "", signal, celery_event,
        _code(one.of_note, IN_LOG), " ".join(one.when.split()),
    ]  # fmt: skip


def _code(names: Any, called: dict[str, str] | None = None) -> str:
    return ", ".join(f"``{(called or {}).get(name, name)}``" for name in names or ())

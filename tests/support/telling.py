"""The events of the package as a page, and the code that tells of each.

``python -m tests.support.telling`` writes `docs/events.rst`.
"""

from __future__ import annotations

import ast
import importlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from celery_reliable import events, signals

__all__ = ["PACKAGE", "PAGE", "Teller", "loggings", "page", "tellers", "tellers_of"]

_ROOT = Path(__file__).parents[2]
PACKAGE = _ROOT / "celery_reliable"
PAGE = _ROOT / "docs" / "events.rst"

#: What the sender of a signal is, by the argument of the event.
_SENDERS = {
    "name": "the task's name",
    "task": "the task",
    "worker": "the worker's id",
    "app": "the app",
}

_LOGGING = {"critical", "debug", "error", "exception", "info", "log", "warning"}
_LOGGERS = {"logger", "logging", "events.logger"}

_HEAD = """\
Events
======

.. Written by ``python -m tests.support.telling``; a test compares it with the declarations.

What the package tells of: by a line in the log, and where it says so by a signal of
``celery_reliable.signals`` and an event of Celery's (``celery worker -E``).

All lines come from the logger ``celery_reliable``, as ``name key=value …``. Each is one line, and
none has the password of a URL. A task is ``id`` in the log, ``task_id`` in a signal and ``uuid`` in
an event of Celery's. A signal and an event have the name of the line, the event with dashes, or
the one that is given. Celery's events of tasks have ``name`` besides. Signals and events promise no
delivery, and may come twice. The first to have an alarm on is ``task_buried``, of a task that is a
dead letter.

With events on, Flower and its like hear of tasks by Celery's own ``task-failed`` too where Celery
sends none, since the process is dead that would have. Monitors show the names of our events as a
task's state until the next of Celery's own that counts for more: ``LOST``, then ``RECOVERED``, then
``SUCCESS`` or ``FAILURE``.

What has a *note* is noted in the ledger too, under the name of the line and with these fields, and
counted by the hour; by the values of a field in brackets it is counted apart. Notes promise no
delivery either. No note has an argument of a task, or the text of an exception, which may have one.
"""


@dataclass(frozen=True, order=True)
class Teller:
    """A place in the package that tells of an event: the module, the function, and the event."""

    module: str
    function: str
    event: str


def tellers(folder: Path = PACKAGE) -> set[Teller]:
    """Every call of an event in the modules below a folder, but for those of `events`."""
    return {
        Teller(module, function, call.func.attr)
        for module, function, call in _calls(folder)
        if isinstance(call.func, ast.Attribute)
        and ast.unparse(call.func.value) == "events"
        and isinstance(getattr(events, call.func.attr, None), events.Event)
    }


def tellers_of(event: events.Event[Any]) -> set[tuple[str, str]]:
    """The module and the function of each that tells of an event."""
    return {(one.module, one.function) for one in tellers() if one.event == event.name}


def loggings(folder: Path = PACKAGE) -> list[str]:
    """What is logged, or sent as a signal or event of ours, past `events`, one line each."""
    return [
        f"{module}:{call.lineno} {ast.unparse(call.func)}"
        for module, _, call in _calls(folder)
        if isinstance(call.func, ast.Attribute) and _is_past_events(call.func)
    ]


def page() -> str:
    """The page that lists the events."""
    parts = [_HEAD]
    for name in dict.fromkeys(one.module for one in events.DECLARED.values()):
        title = _title(name)
        rows = [_row(one) for one in events.DECLARED.values() if one.module == name]
        parts.append(
            f"{title}\n{'-' * len(title)}\n\n.. list-table::\n   :header-rows: 1\n"
            "   :widths: 18 8 16 13 13 12 20\n\n"
            + _as_row(["event", "level", "fields", "signal", "Celery's event", "note", "when"])
            + "".join(rows)
        )
    return "\n".join(parts)


def _is_past_events(function: ast.Attribute) -> bool:
    of = ast.unparse(function.value)
    if function.attr in _LOGGING and (of in _LOGGERS or of.startswith("logging.getLogger")):
        return True
    return function.attr == "send" and of.rpartition(".")[2] in signals.__all__


def _calls(folder: Path) -> Iterator[tuple[str, str, ast.Call]]:
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder.parent).with_suffix("").parts
        if "events" in parts[1:-1]:
            continue
        module = ".".join(parts).removesuffix(".__init__")
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


def _title(module: str) -> str:
    doc = importlib.import_module(module).__doc__ or ""
    return " ".join(doc.partition("\n\n")[0].split()).partition(":")[0].rstrip(".")


def _row(one: events.Event[Any]) -> str:
    levels = [logging.getLevelName(level).lower() for level in one.levels if level]
    return _as_row(
        [
            f"``{one.name}``",
            " or ".join(levels),
            _code(one.fields) if levels else "",
            _signal(one),
            _celery_event(one),
            _note(one),
            " ".join(one.when.split()),
        ]
    )


def _signal(one: events.Event[Any]) -> str:
    return f"{_code(one.in_signal)}; sender: {_SENDERS[one.sender]}" if one.in_signal else ""


def _celery_event(one: events.Event[Any]) -> str:
    fields = _code(one.fields_of_celery_event)
    own = one.name.replace("_", "-")
    return fields if one.celery_kind == own else f"``{one.celery_kind}``: {fields}"


def _note(one: events.Event[Any]) -> str:
    names = [f"({name})" if name == one.counted_by else name for name in one.fields_of_note]
    return _code(names)


def _code(names: Any) -> str:
    return ", ".join(f"``{name}``" for name in names or ())


def _as_row(cells: list[str]) -> str:
    first, *others = (f"- {cell}".rstrip() for cell in cells)
    return "".join([f"   * {first}\n", *(f"     {cell}\n" for cell in others)])


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")

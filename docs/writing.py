"""The reference pages and the one of events, made of the code that they are about.

``python -m docs.writing`` writes them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import click
from django.conf import settings as django_settings

from celery_reliable import ReliableConfig, ReliableTask
from celery_reliable.findings import TABLE
from celery_reliable.operations import metrics as declared
from celery_reliable.operations.cli import reliable
from celery_reliable.options import TaskOptions
from celery_reliable.options.calls import CALL_OPTIONS
from celery_reliable.options.definition import OPTIONS
from celery_reliable.settings import MAX_SECONDS
from docs.rst import as_code, filled, head, indented, one_line, prose, section, table
from tests.support import telling

FOLDER = Path(__file__).parent / "reference"

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


# -- the doors: commands, JSON API, metrics


def commands() -> str:
    """The page of the command line."""
    parts = [
        head(
            "Commands",
            """
            All of them are given as ``celery -A proj reliable …``, and each says the same with
            ``--help``. What they are for: :doc:`/operations`.
            """,
        ),
        prose(reliable.help),
        _options_table(reliable),
    ]
    for words, command in walk(reliable, ()):
        with click.Context(command, info_name=" ".join(words)) as context:
            pieces = " ".join(command.collect_usage_pieces(context))
        usage = f"reliable {' '.join(words)} {pieces}"
        text = f".. code-block:: text\n\n    {usage}\n\n{prose(command.help)}"
        if options := _options_table(command):
            text += f"\n{options}"
        parts.append(section(f"reliable {' '.join(words)}", text))
    return "\n".join(parts).rstrip("\n") + "\n"


def walk(
    group: click.Group, words: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command below a group that does something, by its words."""
    for name, command in sorted(group.commands.items()):
        if isinstance(command, click.Group):
            yield from walk(command, (*words, name))
        else:
            yield (*words, name), command


def api() -> str:
    """The page of the JSON API."""
    # ninja reads Django's settings as it is imported.
    if not django_settings.configured:
        django_settings.configure()
    from celery_reliable.contrib.django.api import document_of

    document = document_of("/", [])
    parts = [
        head(
            "JSON API",
            """
            Every operation, made of the declarations by which requests are checked, as
            ``v1/openapi.json`` is, which has the types of all answers besides. How it is switched
            on and asked: :doc:`/operations-api`. Addresses are below ``v1/``.
            """,
        )
    ]
    for path, methods in document["paths"].items():
        for method, one in methods.items():
            rows = [_parameter(document, given) for given in one.get("parameters", ())]
            rows += _body(document, one)
            statuses = ", ".join(f"``{status}``" for status in one["responses"])
            text = prose(f"{one['summary']}.\n\n{one.get('description', '')}")
            text += f"\nAnswers: {statuses}\n"
            if rows:
                text += "\n" + table(["parameter", "in", "type", "meaning"], rows, "20 10 25 45")
            parts.append(section(f"{method.upper()} {path.removeprefix('/')}", text))
    return "\n".join(parts).rstrip("\n") + "\n"


def metrics() -> str:
    """The page of the metrics."""
    fleet = [
        [
            f"``{one.name}_total``" if one.is_counter else f"``{one.name}``",
            "counter" if one.is_counter else "gauge",
            _code(one.labels),
            one_line(one.text),
        ]
        for one in fleet_metrics()
    ]
    columns, widths = ["name", "type", "labels", "meaning"], "30 12 18 40"
    return head(
        "Metrics",
        """
            For Prometheus, with ``celery-reliable[metrics]``. How they are served:
            :doc:`/operations-status`; a dashboard and alarms on them: :doc:`/monitoring`. Times
            are seconds.
            """,
    ) + table(columns, fleet, widths)


def fleet_metrics() -> list[declared.Metric[Any]]:
    """What the collectors yield, each once."""
    return [declared.UP, *declared.FLEET]


def metric_names() -> set[str]:
    """The names of all metrics, as Prometheus has them."""
    return {f"{one.name}_total" if one.is_counter else one.name for one in fleet_metrics()}


def _code(names: Any) -> str:
    return ", ".join(f"``{name}``" for name in names)


def _options_table(command: click.Command) -> str:
    rows = []
    with click.Context(command) as context:
        for one in command.params:
            if isinstance(one, click.Option) and (record := one.get_help_record(context)):
                # A pattern is no emphasis.
                rows.append([f"``{record[0]}``", one_line(record[1].replace("*", r"\*"))])
    return table(["option", "meaning"], rows, "35 65") if rows else ""


def _parameter(document: Any, given: Any) -> list[str]:
    schema = given["schema"]
    needed = " (needed)" if given.get("required") else ""
    return [
        f"``{given['name']}``",
        f"{given['in']}{needed}",
        _type(schema),
        _meaning(document, schema),
    ]


def _body(document: Any, one: Any) -> list[list[str]]:
    if "requestBody" not in one:
        return []
    (content,) = one["requestBody"]["content"].values()
    schema = _resolved(document, content["schema"])
    return [
        [
            f"``{name}``",
            "body (needed)" if name in schema.get("required", ()) else "body",
            _type(part),
            _meaning(document, part),
        ]
        for name, part in schema["properties"].items()
    ]


def _resolved(document: Any, schema: Any) -> Any:
    (schema,) = schema.get("allOf", [schema])
    name = schema.get("$ref", "").rpartition("/")[2]
    return document["components"]["schemas"][name] if name else schema


def _meaning(document: Any, schema: Any) -> str:
    said = schema.get("description") or _resolved(document, schema).get("description", "")
    return one_line(said)


def _type(schema: Any) -> str:
    if "$ref" in schema:
        return schema["$ref"].rpartition("/")[2]
    if "allOf" in schema:
        (only,) = schema["allOf"]
        return _type(only)
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"``{one}``" for one in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return str(schema.get("type", "any"))


# -- the states of a task, from the moves that the ledger's scripts declare

#: What a reader calls each state.
NAMES = {
    "new": "not published",
    "queued": "queued",
    "running": "running",
    "waiting": "waiting",
    "dead": "dead letter",
    "ended": "ended",
}

#: Of workers, whose states have some of the same names.
_OF_WORKERS = {"register", "heartbeat", "declare", "deregister"}


def moves() -> list[tuple[str, str, str, str]]:
    """Script, who calls it, from, to: the rows of the ledger's table that are about tasks.

    A test of the ledger compares that table with the scripts.
    """
    readme = resources.files("celery_reliable.ledger").joinpath("README.rst").read_text("utf-8")
    transitions = readme.partition("Transitions\n====")[2].partition("Keys\n====")[0]
    lines = [line for line in transitions.splitlines() if line.startswith(("script ", "``"))]
    who_at, moves_at = (lines[0].index(name) for name in ("called by", "moves"))
    found, before = [], ""
    for line in lines[1:]:
        script, who = line[:who_at].strip(" `"), line[who_at:moves_at].strip()
        before = who = before + who[8:] if who.startswith("the same") else who
        source, _, target = line[moves_at:].partition(" -> ")
        if target and script not in _OF_WORKERS:
            found += [(script, who, one, two) for one in _states(source) for two in _states(target)]
    known = {"absent", *NAMES}
    return [one for one in found if {one[2], one[3]} <= known and one[2] != one[3]]


@cache
def arrows() -> dict[tuple[str, str], list[tuple[str, str]]]:
    """The moves between two states that the page lists, each with the scripts that make it and who
    calls those: no record is *not published* where it begins, and *ended* else.
    """
    by: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for script, who, source, target in moves():
        ends = ("new" if source == "absent" else source, "ended" if target == "absent" else target)
        by.setdefault(ends, []).append((script, who))
    return by


def states() -> str:
    """The page of the states."""
    rows = [
        [NAMES[source], NAMES[target], "; ".join(f"``{script}`` ({who})" for script, who in by)]
        for (source, target), by in arrows().items()
    ]
    return (
        head(
            "States of a task",
            """
            Every move that there is, made of what the scripts of the ledger declare. Each is one
            script, which Redis runs as a whole; nothing else changes a state. What the words mean:
            :doc:`/concepts`.
            """,
        )
        + f"{PICTURE}\n"
        + table(["from", "to", "by"], rows, "18 18 64")
        + "\nA task that is *not published*, or has *ended*, has no record: a message that the"
        " ledger\nnever recorded is claimed, or buried, all the same.\n"
    )


PICTURE = """\
.. image:: states.svg
   :alt: From not published by record to waiting or queued; by claim to running; by settle to ended.
         A running task is queued again by lose, or dead; a dead letter is queued by
         record, as it is replayed, or ended by cancel.
   :width: 100%
"""


def _states(text: str) -> list[str]:
    return [re.sub(r"\(.*\)", "", one).split(",")[0].strip() for one in text.split("|")]


PAGES: dict[str, Callable[[], str]] = {
    "../events.rst": telling.page,
    "api.rst": api,
    "commands.rst": commands,
    "findings.rst": findings,
    "metrics.rst": metrics,
    "options.rst": options,
    "settings.rst": settings,
    "states.rst": states,
}


if __name__ == "__main__":
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), "utf-8")

"""The reference pages of the doors: commands, JSON API, metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
import prometheus_client
from celery import Celery
from django.conf import settings
from prometheus_client import CollectorRegistry

from celery_reliable.operations import gauges
from celery_reliable.operations import metrics as declared
from celery_reliable.operations.cli import reliable
from tests.support.rst import head, one_line, prose, section, table


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
    ]
    for words, command in walk(reliable, ()):
        with click.Context(command, info_name=" ".join(words)) as context:
            pieces = " ".join(command.collect_usage_pieces(context))
            usage = f"reliable {' '.join(words)} {pieces}"
            text = f".. code-block:: text\n\n    {usage}\n\n{prose(command.help)}"
            rows = [_option(context, one) for one in command.params if _is_option(one)]
        if rows:
            text += "\n" + table(["option", "meaning"], rows, "35 65")
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
    if not settings.configured:
        settings.configure()
    from celery_reliable.contrib.django.api.routes import document_of

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
    counted = [
        [f"``{_total(one)}``", one._type, _code(one._labelnames), one_line(one._documentation)]
        for one in _counts()
    ]
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
    return (
        head(
            "Metrics",
            """
            For Prometheus, with ``celery-reliable[metrics]``. How they are served:
            :doc:`/operations-status`; a dashboard and alarms on them: :doc:`/monitoring`. Times
            are seconds.
            """,
        )
        + section(
            "Of the fleet",
            "Told by ``reliable metrics``.\n\n" + table(columns, fleet, widths),
        )
        + "\n"
        + section(
            "Of processes",
            "Counted where ``install_metrics`` was called.\n\n" + table(columns, counted, widths),
        )
    ).rstrip("\n") + "\n"


def fleet_metrics() -> list[gauges.Metric[Any]]:
    """What the collectors yield, each once."""
    return [gauges.UP, *gauges.FLEET]


def metric_names() -> set[str]:
    """The names of all metrics, as Prometheus has them."""
    fleet = {f"{one.name}_total" if one.is_counter else one.name for one in fleet_metrics()}
    return fleet | {_total(one) for one in _counts()}


def _counts() -> list[Any]:
    made = declared._Counts(Celery(set_as_current=False), prometheus_client, CollectorRegistry())
    return list(made.metrics.values())


def _total(one: Any) -> str:
    return f"{one._name}_total" if one._type == "counter" else str(one._name)


def _code(names: Any) -> str:
    return ", ".join(f"``{name}``" for name in names)


def _is_option(one: click.Parameter) -> bool:
    return isinstance(one, click.Option) and not one.hidden


def _option(context: click.Context, one: click.Parameter) -> list[str]:
    record = one.get_help_record(context)
    assert record is not None, one.name
    # A pattern is no emphasis.
    return [f"``{record[0]}``", one_line(record[1].replace("*", r"\*"))]


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

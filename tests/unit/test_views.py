"""Each thing that operators see is declared once: its JSON is what the class says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime, timezone
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pydantic
import pytest

from celery_reliable import operations
from celery_reliable.operations import WaitsFor, as_json, views

THINGS = [
    kind
    for name in views.__all__
    if is_dataclass(kind := getattr(views, name)) and kind is not views.FullStatus
]


def sample(hint: Any) -> Any:
    """A value of a type."""
    origin, args = get_origin(hint), get_args(hint)
    if is_dataclass(hint):
        return thing(hint)
    if origin in (Union, UnionType):
        return sample(next(one for one in args if one is not NoneType))
    if origin is tuple:
        return (sample(args[0]),)
    if origin is Mapping:
        return {"name": sample(args[1])}
    if origin is Literal:
        return args[0]
    if isinstance(hint, type) and issubclass(hint, Enum):
        return next(iter(hint))
    moment = datetime(2026, 11, 28, 5, 0, 0, 1_000, timezone.utc)
    values: dict[Any, Any] = {str: "text", int: 7, float: 0.5, bool: True, Any: [1, {"x": None}]}
    return moment if hint is datetime else values[hint]


def thing(kind: Any) -> Any:
    """One of a class, with a value in each field."""
    hints = get_type_hints(kind)
    return kind(**{one.name: sample(hints[one.name]) for one in fields(kind)})


@pytest.mark.parametrize("kind", THINGS, ids=lambda kind: str(kind.__name__))
def test_what_a_program_reads_is_what_is_declared(kind: Any) -> None:
    one = thing(kind)

    found = json.loads(json.dumps(as_json(one)))

    assert list(found) == [field.name for field in fields(kind)]
    assert pydantic.TypeAdapter(kind).validate_python(found) == one
    assert getattr(operations, kind.__name__) is kind


def test_times_have_milliseconds_and_their_zone() -> None:
    assert as_json(datetime(2026, 1, 2, tzinfo=timezone.utc)) == "2026-01-02T00:00:00.000+00:00"


def test_what_a_status_is_judged_by_is_no_part_of_its_json() -> None:
    status = thing(views.Status)
    hidden = [one for one in fields(views.FullStatus) if one.name not in vars(status)]
    full = views.FullStatus(**vars(status), **{one.name: object() for one in hidden})

    assert len(hidden) > 5
    assert as_json(full) == as_json(status)


def test_of_what_a_task_waits_for_only_what_applies_is_told() -> None:
    assert as_json(WaitsFor(views.Wait.QUEUE, "It waits.", before=0)) == {
        "kind": "queue",
        "sentence": "It waits.",
        "before": 0,
    }

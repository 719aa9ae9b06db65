"""The list of queries and acts: whole, and true of the doors that are made from it."""

from __future__ import annotations

from dataclasses import is_dataclass
from datetime import datetime
from enum import Enum
from typing import Any, get_origin

import pytest

from celery_reliable.operations import ACTS, QUERIES, Filter, Operation, Right
from celery_reliable.operations.cli import reliable
from tests.support.reference_doors import walk

ALL = (*QUERIES, *ACTS)

each_operation = pytest.mark.parametrize("operation", ALL, ids=lambda one: one.name)


def test_every_command_is_an_operation_but_the_one_that_serves_metrics() -> None:
    declared = {command.name for one in ALL for command in one.commands}

    assert {" ".join(words) for words, _ in walk(reliable, ())} == declared | {"metrics"}


def test_no_two_operations_have_a_name_or_an_address_in_common() -> None:
    names = [one.name for one in ALL]
    paths = [one.path for one in ALL if one.path]

    assert len(names) == len(set(names)) == 25
    assert len(paths) == len(set(paths)) == 21


@each_operation
def test_what_people_read_of_an_operation_is_there(operation: Operation) -> None:
    summary = operation.about.partition("\n\n")[0]
    assert summary.endswith("."), summary
    for one in operation.parameters:
        for part in one.parts or (one,):
            assert part.param.help, part


@each_operation
def test_every_type_is_one_that_a_door_can_read(operation: Operation) -> None:
    known = (str, int, float, bool, datetime, Filter)
    for one in operation.parameters:
        is_enum = isinstance(one.type, type) and issubclass(one.type, Enum)
        assert is_enum or one.type in known or get_origin(one.type) in (tuple, list, dict), one
        if not one.is_required and one.default is not None and get_origin(one.type) is None:
            assert isinstance(one.default, (one.type, int)), one
    assert is_dataclass(get_origin(operation.result) or operation.result)


@each_operation
def test_what_an_operation_says_of_its_parameters_is_true(operation: Operation) -> None:
    names = {one.name for one in operation.parameters}
    for command in operation.commands:
        assert set(command.preset) <= names
    assert {operation.asks_with} - {""} <= names
    if operation.reports_progress:
        assert "dry_run" in names
        assert operation.noun
        assert operation.verb


def test_only_acts_need_more_than_to_view() -> None:
    assert {one.needs for one in QUERIES} == {(Right.VIEW,)}
    assert all(one.needs and Right.VIEW not in one.needs for one in ACTS)


def test_an_operation_is_run_with_what_is_given_by_its_names() -> None:
    told: list[Any] = []

    def act(desk: str, by: str, *, id_: str, limit: int = 3) -> None:
        told.append((desk, by, id_, limit))

    operation = Operation(act, (Right.OPERATE,), is_act=True)
    operation.run("desk", {"id": "one"}, by="me")

    assert [one.name for one in operation.parameters] == ["id", "limit"]
    assert told == [("desk", "me", "one", 3)]


def test_what_may_be_left_out_is_none_and_no_type_of_its_own() -> None:
    (cause,) = (one for one in _letters().parts if one.name == "cause")

    assert (cause.type, cause.default, cause.is_required) == (str, None, False)


def test_groups_are_asked_by_what_letters_have_in_common() -> None:
    (groups,) = (one for one in QUERIES if one.name == "dead_letter_groups")

    assert {one.name for one in groups.parameters[0].parts} < {one.name for one in _letters().parts}


def _letters() -> Any:
    (letters,) = (one for one in QUERIES if one.name == "dead_letters")
    return next(one for one in letters.parameters if one.name == "filter")

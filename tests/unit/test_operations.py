"""The list of queries and acts: whole, and true of the doors that are made from it."""

from __future__ import annotations

from dataclasses import is_dataclass
from datetime import datetime
from enum import Enum
from typing import get_origin

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


def test_only_acts_need_more_than_to_view() -> None:
    assert {one.needs for one in QUERIES} == {(Right.VIEW,)}
    assert all(one.needs and Right.VIEW not in one.needs for one in ACTS)

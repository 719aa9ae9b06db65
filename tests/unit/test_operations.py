"""The list of queries and acts is whole; and which tasks and letters a filter means."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from celery_reliable.operations import ACTS, QUERIES, Filter, Right
from celery_reliable.operations.cli import reliable
from celery_reliable.operations.listing import Subject
from docs.writing import walk

ALL = (*QUERIES, *ACTS)


def test_every_command_is_an_operation_but_the_one_that_serves_metrics() -> None:
    declared = {command.name for one in ALL for command in one.commands}

    assert {" ".join(words) for words, _ in walk(reliable, ())} == declared | {"metrics"}


def test_no_two_operations_have_a_name_or_an_address_in_common() -> None:
    names = [one.name for one in ALL]
    paths = [one.path for one in ALL if one.path]

    assert len(names) == len(set(names)) == 22
    assert len(paths) == len(set(paths)) == 18


def test_what_people_read_of_an_operation_is_there() -> None:
    for operation in ALL:
        summary = operation.about.partition("\n\n")[0]
        assert summary.endswith("."), summary
        for one in operation.parameters:
            assert one.param.help, one


def test_only_acts_need_more_than_to_view() -> None:
    assert {one.needs for one in QUERIES} == {(Right.VIEW,)}
    assert all(one.needs and Right.VIEW not in one.needs for one in ACTS)


# -- filters

NOW_MS = 1_700_000_100_000
SUBJECT = Subject(
    name="billing.charge",
    queue="money",
    reason="failed",
    exception="billing.NoCard: customer Öztürk",
    workers=("one@host", "two@host"),
    at_ms=NOW_MS - 60_000,
)


@pytest.mark.parametrize(
    ("fits", "fits_not"),
    [
        (Filter(task="billing.*"), Filter(task="billing")),
        (Filter(queue="mon*"), Filter(queue="celery")),
        (Filter(reason="failed"), Filter(reason="fail")),
        (Filter(exception="billing.NoCard"), Filter(exception="customer*")),
        (Filter(worker="two@*"), Filter(worker="three@*")),
        (Filter(older_than_seconds=60), Filter(older_than_seconds=61)),
        (Filter(newer_than_seconds=60), Filter(newer_than_seconds=59)),
    ],
)
def test_what_fits_and_what_does_not(fits: Filter, fits_not: Filter) -> None:
    assert fits.matches(SUBJECT, NOW_MS)
    assert not fits_not.matches(SUBJECT, NOW_MS)


def test_every_part_is_looked_at_and_told() -> None:
    """A part that is forgotten in `matches` would replay what nobody meant."""
    for one in fields(Filter):
        value: object = "nothing like it"
        if one.name.endswith("_seconds"):
            value = 1e9 if one.name.startswith("older") else -1.0
        filter_ = replace(Filter(), **{one.name: value})
        assert not filter_.matches(SUBJECT, NOW_MS), one.name
        assert filter_.given == {one.name: value}

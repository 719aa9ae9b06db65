from __future__ import annotations

import dataclasses
import math

import pytest

from celery_reliable.exceptions import ConfigurationError
from celery_reliable.settings.config import ReliableConfig


def problems_of(**settings: object) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as caught:
        ReliableConfig.from_mapping(settings)
    return caught.value.problems


def test_every_setting_can_be_given():
    given = {
        "REDIS_URL": "redis://localhost:6380/3",
        "NAMESPACE": "shop:tasks",
        "LEASE_SECONDS": 4,
        "WITNESS_SECONDS": 0,
        "SWEEP_SECONDS": 0.5,
        "SWEEP_BATCH": 10,
        "QUEUED_SECONDS": 5.5,
        "GIVE_BACK_SECONDS": 0,
        "ACKNOWLEDGE_SECONDS": 60,
        "ETA_HORIZON_SECONDS": 5,
        "MAX_LOSSES": 0,
        "STALL_SECONDS": 9,
        "DEAD_LETTER_SECONDS": 1,
        "DEAD_LETTER_MAX": 1,
        "KEEP_ENDED": 0,
        "KEEP_ENDED_ONE_IN": 100,
        "PROBE_DIRECTORY": "/run/celery",
        "GRACE_SECONDS": 30.0,
        "OUTBOX": True,
        "FAIL_OPEN": True,
    }

    config = ReliableConfig.from_mapping(given)

    expected = {name.lower(): value for name, value in given.items()}
    assert dataclasses.asdict(config) == {**expected, "cache": None}


def test_an_unknown_name_suggests_the_near_one():
    (problem,) = problems_of(LEASE=1)

    assert "'LEASE'" in problem
    assert "Did you mean 'LEASE_SECONDS'?" in problem


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("LEASE_SECONDS", 0.5, "at least 1"),
        ("LEASE_SECONDS", True, "a number of seconds"),
        ("QUEUED_SECONDS", math.inf, "at most 315360000"),
        ("SWEEP_BATCH", 1.0, "a whole number"),
        ("QUEUED_SECONDS", 0, "more than 0"),
        ("MAX_LOSSES", -1, "at least 0"),
        ("OUTBOX", 1, "True or False"),
        ("NAMESPACE", "a{b}", "braces"),
        ("NAMESPACE", "a\n", "whitespace"),
        ("CACHE", " ", "CACHES"),
        ("REDIS_URL", "localhost:6379", "redis://"),
    ],
)
def test_a_value_that_cannot_work_is_named_with_what_is_expected(name, value, expected):
    (problem,) = problems_of(**{name: value})

    assert problem.startswith(f"{name} is {value!r}: expected ")
    assert expected in problem


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"REDIS_URL": "redis://localhost", "CACHE": "default"},
            ["REDIS_URL is 'redis://localhost'", "CACHE is 'default'", "Remove one"],
        ),
        (
            {"SWEEP_SECONDS": 4, "LEASE_SECONDS": 10},
            ["SWEEP_SECONDS is 4", "LEASE_SECONDS is 10", "at most 2.5", "at least 16"],
        ),
        (
            {"WITNESS_SECONDS": 9, "LEASE_SECONDS": 9},
            ["WITNESS_SECONDS is 9", "LEASE_SECONDS is 9", "below 9"],
        ),
        ({"QUEUED_SECONDS": 15}, ["QUEUED_SECONDS is 15", "SWEEP_SECONDS is 2", "at least 16"]),
        ({"ETA_HORIZON_SECONDS": 1}, ["SWEEP_SECONDS is 2", "at least 2"]),
    ],
)
def test_a_bad_combination_names_the_settings_the_values_and_the_way_out(settings, said):
    (problem,) = problems_of(**settings)

    assert [part for part in said if part not in problem] == []


def test_all_problems_are_in_one_error():
    with pytest.raises(ConfigurationError) as caught:
        ReliableConfig.from_mapping({"LAESE_SECONDS": 1, "MAX_LOSSES": "3", "OUTBOX": None})

    text = str(caught.value)
    assert len(caught.value.problems) == 3
    assert all(problem in text for problem in caught.value.problems)
    assert len(text.split("\n\n")) == 3

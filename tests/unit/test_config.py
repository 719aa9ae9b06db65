from __future__ import annotations

import dataclasses
import datetime
import math

import pytest

from celery_reliable.exceptions import ConfigurationError
from celery_reliable.settings.config import ReliableConfig
from celery_reliable.settings.values import sanitized_url


def problems_of(**settings: object) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as caught:
        ReliableConfig.from_mapping(settings)
    return caught.value.problems


@pytest.mark.parametrize("mapping", [None, {}])
def test_the_defaults_are_those_of_the_design(mapping):
    assert dataclasses.asdict(ReliableConfig.from_mapping(mapping)) == {
        "redis_url": None,
        "cache": None,
        "namespace": "reliable",
        "lease_seconds": 10.0,
        "witness_seconds": 1.5,
        "sweep_seconds": 2.0,
        "sweep_batch": 500,
        "queued_seconds": 60.0,
        "give_back_seconds": 1.0,
        "acknowledge_seconds": 300.0,
        "eta_horizon_seconds": 60.0,
        "max_losses": 3,
        "stall_seconds": 30.0,
        "dead_letter_seconds": 30 * 24 * 3600.0,
        "dead_letter_max": 10_000,
        "keep_ended": 10_000,
        "keep_ended_one_in": 0,
        "probe_directory": None,
        "grace_seconds": None,
        "outbox": False,
        "fail_open": False,
    }


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
    assert isinstance(config.lease_seconds, float)


def test_an_alias_can_be_given_in_place_of_a_url():
    assert ReliableConfig.from_mapping({"CACHE": "default"}).cache == "default"


def test_it_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ReliableConfig().lease_seconds = 5.0  # type: ignore[misc]


def test_times_for_redis_are_whole_milliseconds():
    config = ReliableConfig(
        lease_seconds=2.5,
        witness_seconds=0.1,
        sweep_seconds=0.6,
        queued_seconds=7,
        eta_horizon_seconds=1.1,
        dead_letter_seconds=0.5,
    )

    assert config.heartbeat_seconds == 0.625
    assert config.lease_ms == 2500
    assert config.witness_ms == 100
    assert config.sweep_ms == 600
    assert config.queued_ms == 7000
    assert config.eta_horizon_ms == 1100
    assert config.dead_letter_ms == 500
    assert all(type(getattr(config, name)) is int for name in dir(config) if name.endswith("_ms"))


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("LEASE", "LEASE_SECONDS"),
        ("lease_seconds", "LEASE_SECONDS"),
        ("DEADLETTER_MAX", "DEAD_LETTER_MAX"),
        ("URL", "REDIS_URL"),
        ("RELIABLE_NAMESPACE", "NAMESPACE"),
    ],
)
def test_an_unknown_name_suggests_the_near_one(given, meant):
    (problem,) = problems_of(**{given: 1})

    assert repr(given) in problem
    assert f"Did you mean {meant!r}?" in problem


@pytest.mark.parametrize("given", ["XYZZY", 7])
def test_an_unknown_name_without_a_near_one_lists_them_all(given):
    with pytest.raises(ConfigurationError, match=r"REDIS_URL, CACHE, .*, FAIL_OPEN") as caught:
        ReliableConfig.from_mapping({given: 1})

    assert repr(given) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("LEASE_SECONDS", 0.5, "at least 1"),
        ("LEASE_SECONDS", "10", "a number of seconds"),
        ("LEASE_SECONDS", True, "a number of seconds"),
        ("LEASE_SECONDS", None, "a number of seconds"),
        ("LEASE_SECONDS", datetime.timedelta(seconds=10), "a number of seconds"),
        ("LEASE_SECONDS", math.nan, "a number of seconds"),
        ("QUEUED_SECONDS", math.inf, "at most 315360000"),
        ("QUEUED_SECONDS", 10**400, "at most 315360000"),
        ("WITNESS_SECONDS", -1, "at least 0"),
        ("SWEEP_SECONDS", 0, "at least 0.1"),
        ("SWEEP_BATCH", 0, "at least 1"),
        ("SWEEP_BATCH", 5001, "at most 5000"),
        ("SWEEP_BATCH", 1.0, "a whole number"),
        ("QUEUED_SECONDS", 0, "more than 0"),
        ("ETA_HORIZON_SECONDS", 0, "more than 0"),
        ("MAX_LOSSES", -1, "at least 0"),
        ("MAX_LOSSES", False, "a whole number"),
        ("STALL_SECONDS", 0, "more than 0"),
        ("DEAD_LETTER_SECONDS", 0, "more than 0"),
        ("DEAD_LETTER_MAX", 0, "at least 1"),
        ("OUTBOX", 1, "True or False"),
        ("NAMESPACE", "", "not empty"),
        ("NAMESPACE", "a{b}", "braces"),
        ("NAMESPACE", "a b", "whitespace"),
        ("NAMESPACE", "a\n", "whitespace"),
        ("NAMESPACE", None, "a text"),
        ("CACHE", " ", "CACHES"),
        ("CACHE", 1, "CACHES"),
        ("REDIS_URL", "", "the URL of a Redis"),
        ("REDIS_URL", "localhost:6379", "redis://"),
        ("REDIS_URL", "amqp://localhost", "redis://"),
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
        (
            {"QUEUED_SECONDS": 15},
            [
                "QUEUED_SECONDS is 15",
                "LEASE_SECONDS is 10",
                "SWEEP_SECONDS is 2",
                "at least 16",
            ],
        ),
        (
            {"ETA_HORIZON_SECONDS": 1},
            ["ETA_HORIZON_SECONDS is 1", "SWEEP_SECONDS is 2", "at least 2"],
        ),
    ],
)
def test_a_bad_combination_names_the_settings_the_values_and_the_way_out(settings, said):
    (problem,) = problems_of(**settings)

    assert [part for part in said if part not in problem] == []


@pytest.mark.parametrize(
    "settings",
    [
        {"SWEEP_SECONDS": 2.5},
        {"WITNESS_SECONDS": 9.9},
        {"QUEUED_SECONDS": 16},
        {"ETA_HORIZON_SECONDS": 2},
    ],
)
def test_a_value_on_the_edge_of_a_combination_is_taken(settings):
    ReliableConfig.from_mapping(settings)


def test_all_problems_are_in_one_error():
    with pytest.raises(ConfigurationError) as caught:
        ReliableConfig.from_mapping({"LAESE_SECONDS": 1, "MAX_LOSSES": "3", "OUTBOX": None})

    text = str(caught.value)
    assert len(caught.value.problems) == 3
    assert all(problem in text for problem in caught.value.problems)
    assert "3 problems" in text


def test_the_object_is_checked_however_it_is_made():
    with pytest.raises(ConfigurationError, match="LEASE_SECONDS is 0"):
        ReliableConfig(lease_seconds=0)


def test_what_is_no_mapping_is_refused():
    with pytest.raises(ConfigurationError, match="a dictionary of settings, got a list"):
        ReliableConfig.from_mapping([("LEASE_SECONDS", 5)])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "url",
    [
        "redis://:s3cret@localhost:6379/0",
        "redis://user:s3cret@localhost",
        "rediss://user:a/s3cret@localhost",
        "redis://user:a@s3cret@localhost",
        "redis://user:a;s3cret@localhost",
        "redis://user:a\ns3cret@localhost",
        "redis://localhost?password=s3cret&db=3",
        "unix://:s3cret@/run/redis.sock",
        "sentinel://:s3cret@one:26379;sentinel://:s3cret@two:26379",
        "user:s3cret@localhost",
    ],
)
def test_no_password_is_ever_shown(url):
    assert "s3cret" not in sanitized_url(url)
    assert "s3cret" not in repr(url_settings(url))


def url_settings(url: str) -> object:
    try:
        return ReliableConfig(redis_url=url)
    except ConfigurationError as error:
        return str(error)


def test_a_url_of_a_wrong_type_is_not_shown():
    (problem,) = problems_of(REDIS_URL=b"redis://:s3cret@localhost")

    assert "s3cret" not in problem
    assert "a bytes" in problem


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://localhost:6379/0", "redis://localhost:6379/0"),
        ("redis://u:p@localhost:6379/0", "redis://**@localhost:6379/0"),
        ("sentinel://:p@a;sentinel://b", "sentinel://**@a;sentinel://b"),
    ],
)
def test_the_rest_of_a_url_is_shown(url, shown):
    assert sanitized_url(url) == shown


def test_repr_names_every_setting():
    shown = repr(ReliableConfig(redis_url="redis://:p@localhost"))

    assert shown.startswith("ReliableConfig(redis_url='redis://**@localhost', cache=None, ")
    assert all(f"{item.name}=" in shown for item in dataclasses.fields(ReliableConfig))


@pytest.mark.parametrize("mapping", [None, {}, {"SWEEP_SECONDS": 1}])
def test_a_setting_outside_of_the_dictionary_is_refused(mapping):
    with pytest.raises(ConfigurationError) as caught:
        ReliableConfig.from_mapping(mapping, flat=["MAX_LOSSES"])

    (problem,) = caught.value.problems
    assert "CELERY_RELIABLE_MAX_LOSSES" in problem
    assert "CELERY_RELIABLE = {'MAX_LOSSES': ...}" in problem

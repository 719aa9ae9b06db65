"""Settings and URLs: what is read from them, and what is refused with a way out."""

from __future__ import annotations

import dataclasses
import math
import ssl
from typing import Any

import pytest
import redis
from celery import Celery

from celery_reliable import ReliableTask
from celery_reliable.app import reliable_of
from celery_reliable.exceptions import ConfigurationError
from celery_reliable.ledger import connect
from celery_reliable.settings import ReliableConfig, sanitized_url


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
        "MAX_LOSSES": 0,
        "STALL_SECONDS": 9,
        "DEAD_LETTER_SECONDS": 1,
        "DEAD_LETTER_MAX": 1,
        "KEEP_ENDED": 0,
        "KEEP_ENDED_ONE_IN": 100,
        "PROBE_DIRECTORY": "/run/celery",
        "GRACE_SECONDS": 30.0,
        "OUTBOX": True,
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


# -- URLs

SENTINEL = {"master_name": "mymaster"}


def arguments(url: str, **options: Any) -> dict[str, Any]:
    """What redis-py is asked to connect with."""
    pool = connect(url, **options).client().connection_pool
    return {**pool.connection_kwargs, "class": pool.connection_class.__base__}


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://", {"host": "127.0.0.1", "port": 6379, "db": 0, "password": None}),
        ("redis://h:1/2", {"host": "h", "port": 1, "db": 2}),
        ("redis://u:p%40%23ss@h", {"username": "u", "password": "p@#ss", "host": "h"}),
        ("redis://[::1]:7/", {"host": "::1", "port": 7}),
        ("redis://h1:1;redis://h2:2", {"host": "h1", "port": 1}),
        ("unix:///tmp/x.sock?db=3", {"path": "/tmp/x.sock", "db": 3}),
        ("unix://u%40:p%23@/tmp/a%20b", {"path": "/tmp/a b", "username": "u@", "password": "p#"}),
        ("redis+socket:///tmp/x.sock?virtual_host=/2", {"path": "/tmp/x.sock", "db": 2}),
        ("rediss://h", {"class": redis.SSLConnection}),
        ("redis://h?ssl_cert_reqs=none", {"class": redis.SSLConnection, "ssl_cert_reqs": "none"}),
        ("rediss://h?ssl_check_hostname=false", {"ssl_check_hostname": False}),
        ("rediss://h?ssl_min_version=771", {"ssl_min_version": ssl.TLSVersion.TLSv1_2}),
    ],
)
def test_a_url_is_read_as_it_is_meant(url, expected):
    found = arguments(url)

    assert {name: found.get(name) for name in expected} == expected


def test_sentinels_are_read_one_by_one():
    url = "sentinel://:p%23w@a:1/3;sentinel://b;"
    pool = connect(url, transport_options=SENTINEL).client().connection_pool

    nodes = [one.connection_pool.connection_kwargs for one in pool.sentinel_manager.sentinels]
    assert [(one["host"], one["port"]) for one in nodes] == [("a", 1), ("b", 26379)]
    assert pool.connection_kwargs["password"] == "p#w"
    assert pool.connection_kwargs["db"] == 3


# "s3" and "cret" are both parts of the password.
UNREADABLE = [
    "redis://:s3#cret@h",
    "redis://u:s3cret@h/abc",
    "redis://h/abc?password=s3@cret",
    "unix://:s3cret@/tmp/x.sock?db=x",
    "rediss://u:s3cret@h?ssl_min_version=best",
    "sentinel://:s3cret@a;b:2",
    "amqp://u:s3cret@h",
]


@pytest.mark.parametrize("url", UNREADABLE)
def test_a_url_that_cannot_be_read_is_refused_without_its_password(url):
    with pytest.raises(ConfigurationError) as caught:
        connect(url, transport_options=SENTINEL)

    assert "REDIS_URL" in str(caught.value)
    assert caught.value.__context__ is None
    for part in ("s3", "cret"):
        assert part not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://h?password=s3cret&db=1", "redis://h?password=**&db=1"),
        ("redis://h?db=1&Password=s3", "redis://h?db=1&Password=**"),
        ("redis://h?password=s3@cret", "redis://**"),
        ("redis+socket://:s3@/tmp/x.sock", "redis+socket://**@/tmp/x.sock"),
    ],
)
def test_what_people_are_shown_has_no_password(url, shown):
    assert sanitized_url(url) == shown
    assert connect(url).shown == shown


# -- whether queues and ledger are in one database, where several URLs name the broker

A, B = (f"sentinel://h{n}:26379/1" for n in "12")
MASTER = {"master_name": "mymaster"}


def work() -> None:
    """What no test here runs."""


def is_one_database(broker: str, ledger: str | None, **conf: Any) -> bool:
    """Whether an app takes queues and ledger to be together; nothing is connected."""
    with Celery("listed", broker=broker, set_as_current=False) as app:
        app.conf.update(reliable={"REDIS_URL": ledger} if ledger else {}, **conf)
        app.task(name="listed.work", base=ReliableTask, shared=False)(work)
        app.finalize()
        reliable = reliable_of(app)
        assert reliable.is_delivered_from_ledger is bool(reliable.queues_at)
        reliable.close()
        return reliable.is_delivered_from_ledger


@pytest.mark.parametrize(
    ("broker", "ledger", "conf"),
    [
        (A, "redis://h1:26379/1", {}),
        (A, B, {}),
        (A, "sentinel://h1:26379/2", {}),
        # kombu takes the database of one URL, and of another when it goes on to that.
        ("sentinel://h1;sentinel://h2/1", None, {}),
        ("sentinel://h1;redis://h2", None, {}),
        (A, None, {"broker_transport": "redis"}),
        (A, None, {"broker_transport_options": {**MASTER, "credential_provider": object()}}),
        # Which of them is in use, nobody knows.
        ("redis://h1;redis://h2", "redis://h1", {}),
    ],
)
def test_where_nobody_can_tell_they_are_in_two(
    broker: str, ledger: str | None, conf: dict[str, Any]
) -> None:
    assert is_one_database(f"{A};{B}", f"{B};{A}", broker_transport_options=MASTER)
    assert not is_one_database(broker, ledger, **{"broker_transport_options": MASTER, **conf})

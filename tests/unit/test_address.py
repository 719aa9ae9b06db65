from __future__ import annotations

import ssl
from typing import Any

import pytest
import redis

from celery_reliable.exceptions import ConfigurationError
from celery_reliable.ledger import connect
from celery_reliable.settings.values import sanitized_url

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

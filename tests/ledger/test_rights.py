"""A user of Redis who lacks a right: it is said with command and key, and nobody waits for ever."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest
import redis

from celery_reliable.exceptions import LedgerForbidden
from celery_reliable.ledger import FOREVER, Ledger, connect, self_test
from celery_reliable.ledger.answers import Settled
from tests.ledger.scene import Scene
from tests.support.acl import granted, least_rule

#: Short, as who waits for ever waits no longer than this for a right.
PATIENCE_SECONDS = 0.5


@pytest.fixture
def narrow(scene: Scene, shared_redis: redis.Redis) -> Iterator[Scene]:
    """A ledger of a user who may be changed, in the namespace of `scene`."""
    shared_redis.execute_command("ACL", "LOG", "RESET")
    url = granted(shared_redis, namespace=scene.ledger.namespace)
    ledger = Ledger(connect(url), scene.ledger.namespace, patience_seconds=PATIENCE_SECONDS)
    yield Scene(ledger, shared_redis)
    ledger.close()


def test_the_printed_rule_is_enough_for_the_self_test_which_leaves_nothing(
    narrow: Scene,
) -> None:
    before = narrow.snapshot()

    self_test(narrow.ledger)

    # redis-py tells its own name with every connection, and does not mind when it may not.
    found = narrow.client.execute_command("ACL", "LOG")
    # Before redis-py 7 as names and values in turn.
    rows = [r if isinstance(r, dict) else dict(zip(r[::2], r[1::2], strict=True)) for r in found]
    refused = [row[b"object"] for row in rows]
    assert set(refused) <= {b"client", b"client|setinfo"}
    before.pop(narrow.ledger.keys.meta, None)
    after = narrow.snapshot()
    # The first publication of all notes the generation.
    after.pop(narrow.ledger.keys.meta)
    assert after == before


def test_who_waits_for_ever_does_not_wait_for_ever_for_a_right(narrow: Scene) -> None:
    claim = narrow.claim(narrow.publish())
    narrow.client.execute_command("ACL", "SETUSER", "app", "-del")
    started = time.monotonic()

    with pytest.raises(LedgerForbidden) as caught:
        narrow.ledger.settle(claim, patience_seconds=FOREVER)

    assert PATIENCE_SECONDS <= time.monotonic() - started < PATIENCE_SECONDS + 2
    assert caught.value.operation == "settle"
    assert narrow.ledger.keys.record("task") in str(caught.value)
    # It may be settled when the right is back.
    narrow.client.execute_command("ACL", "SETUSER", "app", "+del")
    assert isinstance(narrow.ledger.settle(claim), Settled)


def test_the_rule_names_no_more_keys_than_it_must() -> None:
    patterns = [word for word in least_rule() if word.startswith(("~", "%"))]

    assert patterns
    assert not any(re.fullmatch(r"~\**", pattern) for pattern in patterns)

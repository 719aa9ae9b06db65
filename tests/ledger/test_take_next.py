"""The step of a process that takes its own messages: one message, filed and claimed, or nothing."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
import redis

from celery_reliable.ledger import ObjectLocks, answers
from celery_reliable.model import Claim, State
from tests.ledger.scene import RestartableScene
from tests.ledger.taking import Taking


@pytest.fixture
def taking(restartable: RestartableScene) -> Taking:
    return Taking(restartable)


def test_it_takes_by_priority_and_files_and_claims(taking: Taking) -> None:
    taking.put("late", "a", 3)
    taking.put("second", "b")
    taking.put("first", "a")

    found = [taking.take(f"shift.{n}") for n in range(4)]

    assert [one.queue for one in found] == ["a", "b", "a", ""]
    assert [one.answer for one in found] == [answers.Claimed(1, 0)] * 3 + [None]
    assert (found[3].message, found[3].has_lease) == (None, True)
    assert taking.filed() == {b"shift.0", b"shift.1", b"shift.2"}
    assert taking.scene.client.smembers("listed") == {taking.unacked.encode()}
    record = taking.scene.record_of("first")
    assert (record.state, record.token, record.owner) == (State.RUNNING, "shift.0", "me")


def test_a_call_that_is_repeated_takes_nothing_more(taking: Taking) -> None:
    taking.put("one")
    taking.put("two")

    found, again = [taking.take("shift.1") for _ in range(2)]

    assert (found.queue, found.answer) == ("a", answers.Claimed(1, 0))
    assert (again.queue, again.message, again.answer) == ("a", found.message, found.answer)
    assert taking.filed() == {b"shift.1"}
    assert taking.scene.client.llen(f"{taking.prefix}a0") == 1
    # What is done with goes with the next.
    assert taking.take("shift.2", "shift.1").answer == answers.Claimed(1, 0)
    assert taking.filed() == {b"shift.2"}


@pytest.mark.parametrize(
    "headers",
    [
        {"eta": "2030-01-01T00:00:00"},
        {"expires": "2030-01-01T00:00:00"},
        {"timelimit": [None, 3]},
        {"task": "app.cold"},
        {"reliable": "no stamp"},
        {"reliable": None},
        {"id": 7},
        {"reliable_workers": ["alpha"]},
        {"reliable_call": {"object_id": "x"}},
        {"stamped_headers": ["a"]},
        {"stamped_headers": "no list"},
        {"stamped_headers": 7},
        {"compression": "application/x-gzip"},
    ],
)
def test_what_the_main_process_has_to_see_is_filed_and_not_claimed(
    taking: Taking, headers: dict[str, Any]
) -> None:
    taking.put("one", **headers)

    found = taking.take("shift.1")

    assert found.message is not None
    assert found.answer is None
    assert taking.filed() == {b"shift.1"}
    assert taking.scene.record_of("one").state is State.QUEUED


def test_it_says_which_place_a_task_has_since_it_was_published(taking: Taking) -> None:
    published, ledger = taking.put("one"), taking.scene.ledger
    taking.put("two")
    locks = ObjectLocks(ledger)
    assert locks.take("object", Claim("one", 0, "", published.epoch)) is None
    locks.close()

    assert [taking.take(f"shift.{n}").place for n in range(2)] == ["object", ""]
    # It is the attempt's from now on.
    assert taking.scene.client.get(ledger.keys.lock("object")) == b"1:one"


def test_what_is_no_message_is_filed_as_it_is(taking: Taking, redis_server: Any) -> None:
    client: redis.Redis = redis_server.client()
    for raw in (b"\xff\x00", b"{}", b'"headers": {}, "properties": {', b'{"headers": {"a": }}'):
        client.lpush(f"{taking.prefix}a0", raw)
        found = taking.take(f"shift.{uuid4().hex}")
        assert (found.message, found.answer) == (raw, None)

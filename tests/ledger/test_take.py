"""The step of a process that takes its own messages: one message, filed and claimed, or nothing."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import pytest
import redis
from celery import Celery

from celery_reliable import ReliableTask
from celery_reliable.ledger import answers
from celery_reliable.model import State
from tests.ledger.scene import RestartableScene
from tests.ledger.taking import Taking


@pytest.fixture
def taking(restartable: RestartableScene) -> Taking:
    return Taking(restartable)


def test_it_takes_by_priority_and_files_and_claims(taking: Taking) -> None:
    taking.put("late", "a", 3)
    taking.put("second", "b")
    taking.put("first", "a")

    found = [taking.take(taking.next_tag()) for _ in range(4)]

    assert [one.queue for one in found] == ["a", "b", "a", ""]
    assert [one.answer for one in found] == [answers.Claimed(1, 0, "")] * 3 + [None]
    assert (found[3].message, found[3].has_lease) == (None, True)
    assert taking.filed() == {b"shift.1", b"shift.2", b"shift.3"}
    assert taking.scene.client.smembers("listed") == {taking.unacked.encode()}
    record = taking.scene.record_of("first")
    assert (record.state, record.token, record.owner) == (State.RUNNING, "shift.1", "me")


def test_a_call_that_is_repeated_takes_nothing_more(taking: Taking) -> None:
    taking.put("one")
    taking.put("two")

    found, again = [taking.take("shift.1") for _ in range(2)]

    assert (found.queue, found.answer) == ("a", answers.Claimed(1, 0, ""))
    assert (again.queue, again.message, again.answer) == ("a", found.message, found.answer)
    assert taking.filed() == {b"shift.1"}
    assert taking.scene.client.llen(f"{taking.prefix}a0") == 1
    # What is done with goes with the next.
    assert taking.take("shift.2", "shift.1").answer == answers.Claimed(1, 0, "")
    assert taking.filed() == {b"shift.2"}


def test_a_call_that_comes_late_takes_nothing_as_nobody_hears_of_it(taking: Taking) -> None:
    nothing = taking.step("shift.1")
    taking.scene.ledger.take(nothing)
    taking.put("one")
    first = taking.step("shift.2")
    taking.scene.ledger.take(first)
    taking.put("two")

    # Before the next one, and after it.
    late = [taking.scene.ledger.take(one).message for one in (nothing, first)]
    taking.take("shift.3", "shift.2")
    taking.put("three")
    late += [taking.scene.ledger.take(one).message for one in (nothing, first)]

    assert [one is None for one in late] == [True, False, True, True]
    assert taking.filed() == {b"shift.3"}
    assert taking.scene.client.llen(f"{taking.prefix}a0") == 1


@pytest.mark.parametrize(
    "headers",
    [
        {"task": "app.cold"},
        {"reliable": "no stamp"},
        {"reliable": None},
        {"id": 7},
        {"id": "another's"},
    ],
)
def test_what_its_message_does_not_tell_enough_of_is_filed_and_not_claimed(
    taking: Taking, headers: dict[str, Any]
) -> None:
    taking.put("one", **headers)

    found = taking.take("shift.1")

    assert found.message is not None
    assert found.answer is None
    assert taking.filed() == {b"shift.1"}
    assert taking.scene.record_of("one").state is State.QUEUED


@pytest.mark.parametrize(
    "headers",
    [
        {"expires": "2030-01-01T00:00:00"},
        {"timelimit": [None, 3]},
        {"stamped_headers": ["a"]},
        {"stamped_headers": "no list"},
        {"compression": "application/x-gzip"},
        {"returns": 1},
    ],
)
def test_whatever_else_its_message_tells_a_task_is_claimed(
    taking: Taking, headers: dict[str, Any]
) -> None:
    taking.put("one", **headers)

    assert taking.take("shift.1").answer == answers.Claimed(1, 0, "")


def test_a_message_that_is_too_long_is_filed_and_not_claimed(taking: Taking) -> None:
    taking.put("one", argsrepr="x" * 300_000)
    taking.put("two")

    found = taking.take("shift.1"), taking.take("shift.2")

    assert [one.answer for one in found] == [None, answers.Claimed(1, 0, "")]
    assert taking.filed() == {b"shift.1", b"shift.2"}


def test_it_says_which_place_a_task_has_since_it_was_published(taking: Taking) -> None:
    taking.put("one", unique="object")
    taking.put("two")

    assert [taking.take(taking.next_tag()).answer.place for _ in range(2)] == ["object", ""]
    # It is the attempt's from now on.
    assert taking.scene.client.get(taking.scene.ledger.keys.lock("object")) == b"1:one"


def test_what_is_no_message_is_filed_as_it_is(taking: Taking, redis_server: Any) -> None:
    client: redis.Redis = redis_server.client()
    for raw in (b"\xff\x00", b"{}", b'"headers": {}, "properties": {', b'{"headers": {"a": }}'):
        client.lpush(f"{taking.prefix}a0", raw)
        found = taking.take(taking.next_tag())
        assert (found.message, found.answer) == (raw, None)


#: What a call may say by which its task waits for its moment, for a worker, or for its own options.
_LATER: list[dict[str, Any]] = [
    {"eta": datetime(2020, 1, 1, tzinfo=timezone.utc)},
    {"prefer_workers": ["w*"]},
    {"time_to_run_seconds": 60},
]


def work(*args: Any, **kwargs: Any) -> None:
    """Nothing: it is sent only."""


@pytest.fixture
def task(taking: Taking) -> Iterator[Any]:
    """A reliable task of an app, whose messages go into the first of the lists."""
    told = taking.scene.client.connection_pool.connection_kwargs
    url = f"redis://127.0.0.1:{told['port']}/{told.get('db', 0)}"
    with Celery("app", broker=url, task_cls=ReliableTask, set_as_current=False) as app:
        app.conf.reliable = {"NAMESPACE": taking.scene.ledger.keys.begin[1:-4]}
        app.conf.worker_direct = True
        app.conf.task_default_queue = taking.queues.lists[0]
        yield app.task(name="app.work", shared=False)(work)


@pytest.mark.parametrize(
    ("args", "options"),
    [
        ((), {}),
        ((1, 'a "b", \\ "kwargsrepr": "c"'), {"kwargs": {"x": '", "origin": "'}}),
        (('"headers": {"reliable": "1:2:3"',), {"kwargs": {"headers": {"reliable": "1:2"}}}),
        (("ä €",), {"group_id": "of several", "group_index": 3, "retries": 2}),
        (("x" * 5000,), {"root_id": "root", "parent_id": "parent"}),
        ((), {"argsrepr": "", "kwargsrepr": '"headers": {"reliable": "1:2"'}),
        ((), {"expires": 60, "time_limit": 3, "headers": {"of_somebody": 1, "reliable": "1:2:3"}}),
        ((), {"headers": {"stamps": {"a": 1}, "stamped_headers": ["a"]}, "compression": "gzip"}),
    ],
)
def test_what_is_published_is_claimed_as_it_is_taken(
    taking: Taking, task: Any, args: Any, options: dict[str, Any]
) -> None:
    task.apply_async(args, task_id="one", **options)

    assert taking.take("shift.1").answer == answers.Claimed(1, 0, "")
    assert taking.scene.record_of("one").token == "shift.1"


@pytest.mark.parametrize("options", _LATER)
def test_what_may_have_to_wait_is_claimed_as_it_begins(
    taking: Taking, task: Any, options: dict[str, Any]
) -> None:
    # An argument may look like a stamp that comes first.
    task.apply_async(('"headers": {"reliable": "1:2:3"',), task_id="one", **options)

    taken = taking.take("shift.1")

    assert taken.message is not None
    assert taken.answer is None
    assert taking.scene.record_of("one").state is State.QUEUED

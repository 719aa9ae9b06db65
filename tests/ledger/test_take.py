"""The step of a process that takes its own messages: one message, filed and claimed, or nothing."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest
import redis
from celery import Celery, Task
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from celery_reliable.broker import take_text
from celery_reliable.ledger import TakenMessage, answers
from celery_reliable.message import Stamp
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
        {"eta": "2030-01-01T00:00:00"},
        {"task": "app.cold"},
        {"reliable": "no stamp"},
        {"reliable": None},
        {"id": 7},
        {"reliable_workers": ["alpha"]},
        {"reliable_call": {"object_id": "x"}},
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


#: Where the script begins to read headers as Celery writes them.
_QUICKLY = '\'^{"lang": "py"'
#: Where it decodes them.
_DECODED = "pcall(cjson.decode, "


def work(*args: Any, **kwargs: Any) -> None:
    """Nothing: it is sent only."""


def decoding() -> str:
    """The script, that reads nothing but what it has decoded."""
    text = take_text()
    assert text.count(_QUICKLY) == 1
    return text.replace(_QUICKLY, "'^nobody writes this")


def reading() -> str:
    """The script, that decodes nothing."""
    text = take_text()
    assert text.count(_DECODED) == 1
    return text.replace(_DECODED, "pcall(error, ")


def sent(taking: Taking, task_id: str, args: Any = (), kwargs: Any = None, **options: Any) -> bytes:
    """What Celery itself sends of a task that is published under this id."""
    published = taking.scene.publish(task_id)
    broker = taking.scene.client.connection_pool.connection_kwargs
    url = f"redis://127.0.0.1:{broker['port']}/{broker.get('db', 0)}"
    with Celery("app", broker=url, set_as_current=False) as app:
        app.conf.task_default_queue = f"{taking.prefix}sent"
        # By default every app has it from then on.
        task = app.task(name="app.work", base=Task, shared=False)(work)
        stamp = Stamp(published.generation, published.epoch).of_task(task_id)
        headers = {**options.pop("headers", {}), "reliable": stamp}
        task.apply_async(args, kwargs, task_id=task_id, headers=headers, **options)
    raw = taking.scene.client.rpop(f"{taking.prefix}sent")
    assert raw is not None
    return bytes(raw)


def take(taking: Taking, text: str, raw: bytes, tag: str) -> TakenMessage:
    """Take a message by this text of the script."""
    taking.scene.client.rpush(taking.queues.lists[0], raw)
    return taking.take(tag, text=text)


@pytest.mark.parametrize(
    ("args", "options"),
    [
        ((), {}),
        ((1, 'a "b", \\ "kwargsrepr": "c", "origin": "gen"'), {"kwargs": {"x": '", "origin": "'}}),
        (('"reliable": "1:2"}, "properties": {',), {"kwargs": {"headers": {"id": "other"}}}),
        (("ä €",), {"group_id": "of several", "group_index": 3, "retries": 2}),
        (("x" * 5000,), {"root_id": "root", "parent_id": "parent"}),
        ((), {"argsrepr": "", "kwargsrepr": ""}),
        ((), {"argsrepr": '", "origin": "'}),
    ],
)
def test_what_celery_sends_is_claimed_and_not_decoded(
    taking: Taking, args: Any, options: dict[str, Any]
) -> None:
    kwargs = options.pop("kwargs", None)
    raw = sent(taking, "one", args, kwargs, **options)

    taken = take(taking, reading(), raw, "shift.1")

    assert taken.answer == answers.Claimed(1, 0, "")
    assert (taking.scene.record_of("one").token, taken.message) == ("shift.1", raw)


_VALUES = st.sampled_from(
    [None, "", "x", 0, 1, [], [None, None], [1, None], {}, {"reliable": "1:2"}, {"id": "other"}]
)
_NAMES = [
    *Celery("app", set_as_current=False).amqp.as_task_v2("id", "task").headers, "reliable",
    "compression", "reliable_call", "reliable_workers", "of_somebody", "properties", "headers",
]  # fmt: skip


#: What Celery sends; the same for all variants of one test.
_BASES: dict[str, str] = {}


@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
@given(
    changes=st.dictionaries(st.sampled_from(_NAMES), _VALUES, max_size=3),
    dropped=st.sets(st.sampled_from(_NAMES), max_size=2),
    where=st.sampled_from(["lang", "argsrepr", "kwargsrepr", "stamps", "reliable"]),
)
def test_whatever_somebody_changes_both_ways_say_the_same(
    taking: Taking, changes: dict[str, Any], dropped: set[str], where: str
) -> None:
    if taking.prefix not in _BASES:
        _BASES[taking.prefix] = sent(taking, "the-base", ("body",)).decode()
    raw = _BASES[taking.prefix]
    says: list[Any] = []
    for text in (take_text(), decoding()):
        task_id = uuid4().hex
        published = taking.scene.publish(task_id)
        payload = json.loads(raw.replace("the-base", task_id))
        stamp = Stamp(published.generation, published.epoch).of_task(task_id)
        headers = {**payload["headers"], "reliable": stamp}
        headers = {name: value for name, value in headers.items() if name not in dropped}
        # What is new stands in front of one of the others.
        ordered: dict[str, Any] = {}
        for name, value in headers.items():
            if name == where:
                ordered.update({new: one for new, one in changes.items() if new not in headers})
            ordered[name] = value
        payload["headers"] = {**ordered, **changes}
        taken = take(taking, text, json.dumps(payload).encode(), taking.next_tag())
        record = taking.scene.record_of(task_id)
        says.append((taken.answer, record.state, record.attempt))

    quickly, decoded = says
    assert quickly == decoded

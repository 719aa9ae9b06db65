"""Two ways to read the headers of a message agree: as Celery writes them, and decoded."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest
from celery import Celery, Task
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from celery_reliable.broker import take_next_text
from celery_reliable.ledger import NextTask, answers
from celery_reliable.message import Stamp
from tests.ledger.scene import RestartableScene
from tests.ledger.taking import Taking

#: Where the script begins to read headers as Celery writes them.
_QUICKLY = '\'^{"lang": "py"'
#: Where it decodes them.
_DECODED = "pcall(cjson.decode, "


@pytest.fixture
def taking(restartable: RestartableScene) -> Taking:
    return Taking(restartable)


def work(*args: Any, **kwargs: Any) -> None:
    """Nothing: it is sent only."""


def decoding() -> str:
    """The script, that reads nothing but what it has decoded."""
    text = take_next_text()
    assert text.count(_QUICKLY) == 1
    return text.replace(_QUICKLY, "'^nobody writes this")


def reading() -> str:
    """The script, that decodes nothing."""
    text = take_next_text()
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


def take(taking: Taking, text: str, raw: bytes, tag: str) -> NextTask:
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

    assert taken.answer == answers.Claimed(1, 0)
    assert (taking.scene.record_of("one").token, taken.message) == ("shift.1", raw)


_VALUES = st.sampled_from(
    [None, "", "x", 0, 1, [], [None, None], [1, None], {}, {"reliable": "1:2"}, {"id": "other"}]
)
_NAMES = [
    *Celery("app", set_as_current=False).amqp.as_task_v2("id", "task").headers,
    "reliable",
    "compression",
    "reliable_call",
    "reliable_workers",
    "of_somebody",
    "properties",
    "headers",
]


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
    for text in (take_next_text(), decoding()):
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
        taken = take(taking, text, json.dumps(payload).encode(), f"shift.{task_id}")
        record = taking.scene.record_of(task_id)
        says.append((taken.answer, record.state, record.attempt))

    quickly, decoded = says
    assert quickly == decoded

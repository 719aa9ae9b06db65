"""A message that is waited for by its queue's inbox: it is in the queue, in the inbox, or filed."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis

from celery_reliable.broker import take_next_text
from celery_reliable.broker.arriving import Came, Inbox
from celery_reliable.compat.redis import reply, send
from celery_reliable.ledger import NextTask, answers
from celery_reliable.model import State
from tests.ledger.scene import RestartableScene
from tests.ledger.taking import Taking
from tests.support.acl import granted
from tests.support.waiting import wait_for

SECONDS = 0.3


class Waiting:
    """Queue "a" of `Taking`, its inbox, and connections that wait there."""

    def __init__(self, taking: Taking) -> None:
        self.taking = taking
        self.client = taking.scene.client
        own = taking.queues.lists
        self.list = own[0]
        self.inbox = Inbox(own[0], f"inbox:{own[0]}", own[2:3])
        self._pool = self.client.connection_pool
        self._open: list[Any] = []

    def step(self, tag: str, **options: Any) -> Any:
        where = replace(self.taking.queues, names=["a"], lists=[self.inbox.key])
        ledger = self.taking.scene.ledger
        steps = ledger.next_steps(take_next_text(), where, worker="me", pid=7, **options)
        return steps.step(tag, done="", filed_ms=1)

    def begin(self, step: Any, seconds: float = 5, **user: Any) -> Any:
        """Wait for a message on a new connection."""
        connection = self._pool.make_connection()
        if user:
            connection = redis.Connection(**{**self._pool.connection_kwargs, **user})
        self._open.append(connection)
        connection.connect()
        send(connection, self.inbox.commands(step.call, seconds))
        return connection

    def end(self, connection: Any) -> Came:
        return self.inbox.read([reply(connection) for _ in range(5)])

    def take(self, tag: str, seconds: float = SECONDS) -> tuple[Came, NextTask | None]:
        """Wait so long, and return what came."""
        step = self.step(tag)
        came = self.end(self.begin(step, seconds))
        if came.filed is not None:
            step.hear(came.filed)
        return came, step.answer

    def wait_until_blocked(self, count: int = 1) -> None:
        wait_for(lambda: len(self.blocked()) == count, 10, "they wait")

    def blocked(self) -> list[str]:
        return [one["id"] for one in self.client.client_list() if one["cmd"] == "blmove"]

    def queued(self) -> list[str]:
        """The ids of what is in the queue, the next first."""
        found: Any = self.client.lrange(self.list, 0, -1)
        return [json.loads(raw)["headers"]["id"] for raw in reversed(found)]

    def close(self) -> None:
        for connection in self._open:
            connection.disconnect()


@pytest.fixture
def waiting(restartable: RestartableScene) -> Iterator[Waiting]:
    found = Waiting(Taking(restartable))
    # The server knows the script from then on.
    found.taking.take("none.0")
    yield found
    found.close()


def test_what_is_there_already_is_filed_and_claimed(waiting: Waiting) -> None:
    waiting.taking.put("first")
    waiting.taking.put("second")
    waiting.taking.put("other", priority=3)

    came, task = waiting.take("it.1")

    assert (came.n_waiting, came.n_others, came.refusal, came.is_unknown) == (1, 1, None, False)
    assert task is not None
    assert (task.queue, task.answer) == ("a", answers.Claimed(1, 0))
    assert waiting.taking.filed() == {b"it.1"}
    assert waiting.queued() == ["second"]
    assert not waiting.client.exists(waiting.inbox.key)
    record = waiting.taking.scene.ledger.find("first")
    assert record is not None
    assert (record.state, record.token) == (State.RUNNING, "it.1")


def test_who_waits_in_vain_has_taken_nothing(waiting: Waiting) -> None:
    came, task = waiting.take("it.1")

    assert came._replace(filed=None) == Came(None, False, 0, 0, None)
    assert task == NextTask()
    assert waiting.taking.filed() == set()


def test_each_message_ends_one_wait(waiting: Waiting) -> None:
    steps = [waiting.step(f"it.{n}") for n in range(3)]
    connections = [waiting.begin(step) for step in steps]
    waiting.wait_until_blocked(3)
    for name in ("first", "second"):
        waiting.taking.put(name)
    for step, connection in zip(steps[:2], connections[:2], strict=True):
        step.hear(waiting.end(connection).filed)
    assert [step.answer.answer for step in steps[:2]] == [answers.Claimed(1, 0)] * 2
    assert len(waiting.blocked()) == 1
    assert waiting.taking.filed() == {b"it.0", b"it.1"}


def test_where_nobody_is_idle_it_is_filed_and_not_claimed(waiting: Waiting) -> None:
    waiting.taking.put("first")
    step = waiting.step("it.1", longest=0)

    step.hear(waiting.end(waiting.begin(step)).filed)

    assert step.answer.answer is None
    assert step.answer.message is not None
    assert waiting.taking.filed() == {b"it.1"}
    record = waiting.taking.scene.ledger.find("first")
    assert record is not None
    assert record.state is State.QUEUED


def test_a_client_that_reads_nothing_any_more_has_it_filed(waiting: Waiting) -> None:
    waiting.begin(waiting.step("it.1"))
    waiting.wait_until_blocked()
    waiting.taking.put("first")
    wait_for(lambda: waiting.taking.filed() == {b"it.1"}, 5, "it is filed")
    assert waiting.queued() == []


@pytest.mark.parametrize("number", range(20))
def test_who_is_cut_off_as_it_comes_leaves_it_where_it_can_be_found(
    waiting: Waiting, number: int
) -> None:
    """The server is told of the message and of the end of the connection at once."""
    connection = waiting.begin(waiting.step("it.1"))
    waiting.wait_until_blocked()
    (blocked,) = waiting.blocked()
    published = threading.Thread(target=waiting.taking.put, args=("first",))
    published.start()
    if number % 2:
        waiting.client.client_kill_filter(_id=blocked)
    else:
        connection.disconnect()
    published.join()
    _, task = waiting.take("it.2", SECONDS if not waiting.taking.filed() else 0.01)
    found = waiting.taking.filed()
    assert found in ({b"it.1"}, {b"it.2"})
    assert (task is not None and task.message is not None) is (found == {b"it.2"})
    assert waiting.queued() == []
    assert not waiting.client.exists(waiting.inbox.key)


def test_nothing_is_taken_for_a_worker_that_was_declared_dead(waiting: Waiting) -> None:
    for name in ("first", "second"):
        waiting.taking.put(name)
    waiting.taking.scene.kill_worker("me")

    came, task = waiting.take("it.1")

    assert task == NextTask(has_lease=False)
    assert came.n_waiting == 2
    assert waiting.taking.filed() == set()
    # In its old place.
    assert waiting.queued() == ["first", "second"]


def test_a_server_that_does_not_know_the_script_takes_nothing(waiting: Waiting) -> None:
    for name in ("first", "second"):
        waiting.taking.put(name)
    waiting.client.script_flush()

    came, _ = waiting.take("it.1")

    assert (came.filed, came.is_unknown, came.refusal) == (None, True, None)
    assert waiting.queued() == ["first", "second"]
    assert waiting.taking.filed() == set()


def test_what_a_server_that_died_left_in_the_inbox_is_taken_by_the_next_wait(
    waiting: Waiting,
) -> None:
    for name in ("left", "first", "second"):
        waiting.taking.put(name)
    # As if it had died behind the first of the commands.
    waiting.client.lmove(waiting.list, waiting.inbox.key, "RIGHT", "LEFT")

    found = [waiting.take(f"it.{n}") for n in range(4)]

    ids = [json.loads(task.message)["headers"]["id"] for _, task in found if task and task.message]
    assert ids == ["left", "first", "second"]
    assert not waiting.client.exists(waiting.inbox.key)


def test_it_is_taken_though_no_other_message_comes(waiting: Waiting) -> None:
    waiting.taking.put("left")
    waiting.client.lmove(waiting.list, waiting.inbox.key, "RIGHT", "LEFT")

    _, task = waiting.take("it.1")

    assert task is not None
    assert task.answer == answers.Claimed(1, 0)


def test_who_asks_again_under_the_same_name_has_what_came(waiting: Waiting) -> None:
    """So a worker finds what came as its connection was lost."""
    waiting.taking.put("first")
    _, first = waiting.take("it.1")
    assert first is not None

    step = waiting.step("it.1")
    again = waiting.taking.scene.ledger.take_next(step)

    assert (again.message, again.answer) == (first.message, first.answer)
    # And who had nothing finds nothing.
    nothing = waiting.taking.scene.ledger.take_next(waiting.step("it.2"))
    assert nothing == NextTask()


def _full(waiting: Waiting) -> dict[str, Any]:
    waiting.client.config_set("maxmemory", 1)
    return {}


def _without(right: str) -> Callable[[Waiting], dict[str, Any]]:
    def narrow(waiting: Waiting) -> dict[str, Any]:
        url = urlsplit(granted(waiting.client, without=(right,), more=("~*",)))
        return {"username": url.username, "password": url.password}

    return narrow


@pytest.mark.parametrize("refused", [_full, _without("+blmove"), _without("+lmove")])
def test_a_server_that_refuses_a_part_says_so_and_loses_nothing(
    waiting: Waiting, refused: Callable[[Waiting], dict[str, Any]]
) -> None:
    waiting.taking.put("first")
    user = refused(waiting)
    step = waiting.step("it.1")

    came = waiting.end(waiting.begin(step, SECONDS, **user))

    assert came.refusal is not None
    waiting.client.config_set("maxmemory", 0)
    found = [*waiting.queued(), *waiting.taking.filed()]
    assert found in (["first"], [b"it.1"])

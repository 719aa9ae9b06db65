"""A message that is waited for by its queue's inbox: it is in the queue, in the inbox, or filed."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import redis

from celery_reliable.broker import take_next_text
from celery_reliable.broker.arriving import Came, Inbox
from celery_reliable.compat.redis import reply, send
from celery_reliable.ledger import NextTask
from tests.ledger.scene import RestartableScene
from tests.ledger.taking import Taking
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

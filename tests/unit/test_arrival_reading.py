"""A message is handed on before the rest of what the server has answered is read."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import redis

from celery_reliable.broker import Arrival, Delivery
from celery_reliable.broker.arriving import Arriving, Inbox

REFUSAL = redis.ResponseError("NOPERM this user has no permissions to run the 'lmove' command")


class Reading(Arriving):
    """A channel that has waited, and what becomes of its connection."""

    def __init__(self, rest: list[Any], deliver: Callable[[Reading], None]) -> None:
        self.replies = [[b"message", b"filed"], rest]
        self.is_open = True
        delivery = Delivery("tag", "celery", b"message", "worker")
        self.awaited = Mock()
        self.awaited.hear.return_value = Arrival(delivery, None, None)
        self._awaited = self.awaited, Inbox("celery", "inbox")
        self.worker = Mock()
        self.qos = SimpleNamespace(
            can_consume=lambda: True, unacked=SimpleNamespace(worker=self.worker)
        )
        self._consumed = SimpleNamespace(deliver_all=lambda *_: deliver(self))
        self.has_had_its_turn = lambda _: None
        self.reliable_unacked, self.is_waiting = None, True
        self.wait_no_more = lambda: None
        self._n_waiting = 0

    def read_replies(self, count: int, *, more: bool = False) -> list[Any]:  # type: ignore[override]
        assert self.is_open
        assert more == (len(self.replies) == 2)
        replies = self.replies.pop(0)
        assert len(replies) == count
        return replies

    def read_no_more(self) -> None:  # type: ignore[override]
        self.is_open = False


def test_what_is_refused_behind_a_message_is_heard_and_the_message_is_delivered_once() -> None:
    delivered: list[int] = []
    channel = Reading([REFUSAL, 4, 0], lambda one: delivered.append(len(one.replies)))

    assert channel.end_of_arrival()

    # The rest was not read by then.
    assert delivered == [1]
    assert (channel.is_open, channel._n_waiting) == (True, 4)
    channel.worker.arrivals.refuse.assert_called_once_with(REFUSAL)
    channel.awaited.fail.assert_not_called()


def test_who_closes_the_channel_while_a_message_is_delivered_leaves_nothing_to_read() -> None:
    channel = Reading([None, 0, 0], lambda one: one.end_waiting())

    assert channel.end_of_arrival()

    assert (channel.is_open, len(channel.replies)) == (False, 1)
    channel.awaited.lose.assert_not_called()


def test_a_connection_whose_answers_are_not_read_is_closed_if_a_delivery_fails() -> None:
    def fail(_: Reading) -> None:
        raise SystemExit

    channel = Reading([None, 0, 0], fail)

    with pytest.raises(SystemExit):
        channel.end_of_arrival()

    assert not channel.is_open
    # It was delivered, or is given back: nobody looks for it as for one that was lost.
    channel.awaited.lose.assert_not_called()

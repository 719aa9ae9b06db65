"""How a worker's channel waits for messages: each list hands one to its inbox."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import redis
from kombu.transport import redis as kombu_redis

from celery_reliable.broker.consumers import ConsumingChannel
from celery_reliable.broker.deliveries import Queues
from celery_reliable.compat.kombu import list_key
from celery_reliable.compat.redis import reply, send
from celery_reliable.log import logger
from celery_reliable.redis_io import refuses_writes

__all__ = [
    "INBOX_PREFIX",
    "WAIT_SECONDS",
    "Inbox",
    "WaitingChannel",
    "bring_all_back",
    "bring_back",
    "inbox_of",
]

#: What the key of an inbox begins with; then comes that of its list.
INBOX_PREFIX = "celery-reliable.inbox:"
#: So long a wait lasts.  So long, too, may wait what a dead worker has left in an inbox, or the
#: first message that has a priority.
WAIT_SECONDS = 1


def inbox_of(list_key: str, prefix: str) -> str:
    """Return the key of a list's inbox.  *prefix*: of the broker's keys; that of the list has it,
    too.
    """
    return f"{prefix}{INBOX_PREFIX}{list_key}"


@dataclass(frozen=True)
class Inbox:
    """Of one list: all workers that wait for it share its inbox.  Keys are whole.

    BRPOP hands a message to a connection: a worker that dies before it has filed it leaves it
    nowhere.  BLMOVE moves it into the inbox instead, and wakes one of those who wait.  Whoever
    takes from the list takes what is in its inbox first.  So a message is in its list, in the
    inbox, or filed.  What a worker that died has left in an inbox, the next look of any other
    finds.
    """

    list_key: str
    key: str
    #: The lists of the queue's other priorities, where nobody waits for them.
    others: Sequence[str] = ()

    def commands(self, seconds: float) -> list[tuple[Any, ...]]:
        """Return what is sent to wait for so long, and to look then whether something else has to
        be taken.
        """
        return [
            ("BLMOVE", self.list_key, self.key, "RIGHT", "LEFT", seconds),
            ("EXISTS", self.key, *self.others),
        ]


def bring_back(client: redis.Redis, key: str | bytes, list_key: str | bytes) -> int:
    """Return to its list what is in an inbox, in its order, and how many that was."""
    n = 0
    # The newest first, as each goes in front of the others.
    while client.lmove(key, list_key, "LEFT", "RIGHT"):  # type: ignore[arg-type]
        n += 1
    return n


def bring_all_back(client: redis.Redis, prefix: str, lists: Iterable[str]) -> int:
    """Do the same for all inboxes of a server, and return how many messages that were.

    *prefix*: of the broker's keys.  It walks through all keys, so it is for who leaves.  For a user
    who may not do that it looks at the inboxes of *lists* only.
    """
    begins = f"{prefix}{INBOX_PREFIX}".encode()
    try:
        pattern = re.sub(rb"([\\*?\[\]])", rb"\\\1", begins) + b"*"
        keys = list(client.scan_iter(match=pattern, count=1000))
    except redis.exceptions.NoPermissionError:
        keys = [begins + one.encode() for one in lists]
    return sum(bring_back(client, key, key.removeprefix(begins)) for key in keys)


#: The name of kombu's own connection for waiting.
_OWN = "BRPOP"
#: Of the commands of a wait.
_N_REPLIES = 2
#: A server that is full lets nobody wait; for so long it is not asked.
_PAUSE_SECONDS = 10.0


class WaitingChannel(ConsumingChannel):
    """A channel that waits at the list of each queue's first priority, by a connection for each.

    At those of other priorities it waits as well if the transport's options tell of priorities, or
    as soon as a message was seen there.
    """

    #: How many messages are believed to wait for which nobody was woken.
    _n_waiting = 1
    #: Whether a wait has moved a message into an inbox that may be there yet.
    _has_moved = False
    _is_forbidden = False
    _pauses_until = 0.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        #: What is waited for, by the name of the connection: kombu's own, or another.  None: the
        #: pause of a worker that may not wait.
        self._awaited: dict[str, Inbox | None] = {}
        self._clients: dict[str, Any] = {}
        self._sent_at: dict[str, float] = {}
        super().__init__(*args, **kwargs)
        self._has_priorities = _tells_priorities(self)

    # -- where messages are

    def lists(self, queues: Sequence[str]) -> list[str]:
        """Return the keys of all lists of *queues*, as a script takes from them: for each priority
        the inboxes in which something may be, and then the lists.
        """
        prefix = self.reliable_unacked.prefix if self.reliable_unacked is not None else ""
        found: list[str] = []
        for number, priority in enumerate(self.priority_steps):
            keys = [prefix + list_key(self, queue, priority) for queue in queues]
            if not number or self._has_priorities:
                found += [inbox_of(key, prefix) for key in keys]
            found += keys
        return found

    def queues_for_shift(self) -> Queues | None:
        """Return where a process of the worker may take messages by itself; None: nowhere."""
        queues = [queue for queue in self.queues_in_turn() if self.is_consumed(queue)]
        unacked = self.reliable_unacked
        if not queues or self._is_closing or unacked is None:
            return None
        return unacked.queues(queues, self.lists(queues))

    def _inboxes(self) -> list[Inbox]:
        """Return where to wait now."""
        prefix = self.qos.unacked.prefix
        found = []
        for queue in self.queues_in_turn():
            keys = [prefix + list_key(self, queue, priority) for priority in self.priority_steps]
            at = keys if self._has_priorities else keys[:1]
            others = () if self._has_priorities else keys[1:]
            found += [Inbox(key, inbox_of(key, prefix), others) for key in at]
        return found

    # -- waiting

    def wait_for_all(self) -> None:
        """Begin to wait at each list at which it does not wait yet."""
        self._give_up_silent()
        awaited = {one.list_key for one in self._awaited.values() if one is not None}
        for inbox in self._inboxes():
            if inbox.list_key not in awaited:
                self._send(inbox, inbox.commands(WAIT_SECONDS))

    def forget_wait(self) -> None:
        """Note that kombu's connection waits for nothing: it was lost, and is another by now."""
        self._awaited.pop(_OWN, None)

    def _give_up_silent(self) -> None:
        """Close other connections whose answer is overdue, as kombu does with its own: nobody is
        behind them any more.
        """
        patience = self.health_check_interval
        for name, sent_at in list(self._sent_at.items()):
            waited = time.monotonic() - sent_at
            if patience and name in self._awaited and waited > WAIT_SECONDS + patience:
                del self._awaited[name]
                self._clients[name].connection.disconnect()

    def pause(self) -> None:
        """Wait for nothing, and look anew after that: the server does not let the worker wait."""
        if not self.is_waiting:
            key = f"{self.qos.unacked.key}.pause"
            self._send(None, [("BRPOP", key, WAIT_SECONDS), ("EXISTS", key)])

    def _send(self, inbox: Inbox | None, commands: Sequence[tuple[Any, ...]]) -> None:
        if not self.is_waiting:
            self._awaited[_OWN] = inbox
            self.wait_by(commands)
            return
        name = next((name for name in self._clients if name not in self._awaited), "")
        if not name:
            name = f"BLMOVE {len(self._clients)}"
            self._clients[name] = self.new_client()
        client = self._clients[name]
        self.watch(client, name, partial(self._hear_other, name))
        send(client.connection, commands)
        self._awaited[name], self._sent_at[name] = inbox, time.monotonic()

    @property
    def has_waited_here(self) -> bool:
        """Whether kombu's connection waits as this class does, and not by BRPOP."""
        return _OWN in self._awaited

    def hear(self) -> None:
        """Take note of what ended the wait by kombu's connection."""
        inbox = self._awaited.pop(_OWN)
        self._note(inbox, self.read_replies(_N_REPLIES))

    def _hear_other(self, name: str) -> None:
        inbox, connection = self._awaited.pop(name), self._clients[name].connection
        try:
            replies = [reply(connection) for _ in range(_N_REPLIES)]
        except BaseException:
            connection.disconnect()
            raise
        self._note(inbox, replies)
        self.go_on()

    def _note(self, inbox: Inbox | None, replies: Sequence[Any]) -> None:
        refusals = [one for one in replies if isinstance(one, redis.ResponseError)]
        if refusals:
            self._refused(refusals[0])
        if inbox is None or refusals:
            self._n_waiting += 1
            return
        came, n_left = replies
        if n_left and inbox.others:
            self._has_priorities = bool(self.qos.unacked.client.exists(*inbox.others))
        self._has_moved = self._has_moved or came is not None
        if came is not None or n_left:
            self._n_waiting += 1

    def _refused(self, error: Exception) -> None:
        if not refuses_writes(error) and not self._is_forbidden:
            self._is_forbidden = True
            logger.warning("waiting_forbidden error=%s", error)
        self._pauses_until = time.monotonic() + _PAUSE_SECONDS

    @property
    def has_to_pause(self) -> bool:
        """Whether the server does not let the worker wait."""
        return time.monotonic() < self._pauses_until

    def go_on(self) -> None:
        """Take what has come, and wait for more."""
        raise NotImplementedError

    # -- leaving off

    def bring_back(self) -> None:
        """Return to their lists what is in their inboxes, as nobody here can begin it.  Raises
        redis-py's errors where the connection fails.
        """
        self._has_moved = False
        unacked = self.qos.unacked
        try:
            for inbox in self._inboxes():
                bring_back(unacked.client, inbox.key, inbox.list_key)
        except redis.ResponseError as exc:
            logger.debug("inbox_not_emptied error=%s", exc)

    def stop_waiting(self) -> None:
        """Wait for nothing any more, and leave nothing in an inbox."""
        self._is_closing = True
        was_waiting = bool(self._awaited)
        if self.is_waiting:
            self.read_no_more()
        for client in self._clients.values():
            if client.connection is not None:
                client.connection.disconnect()
        self._awaited.clear()
        self._clients.clear()
        if was_waiting and self.reliable_unacked is not None:
            try:
                self.bring_back()
            except self.connection_errors as exc:
                logger.debug("inbox_not_emptied error=%s", exc)


def _tells_priorities(channel: Any) -> bool:
    """Whether tasks have priorities, as far as the transport's options tell."""
    steps = list(channel.priority_steps)
    is_default = steps == list(kombu_redis.PRIORITY_STEPS) and channel.takes_turns
    return len(steps) > 1 and not is_default

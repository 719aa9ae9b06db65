"""Celery's AMQP: the one point through which an app publishes every task."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from functools import cached_property
from typing import Any

from celery import chord
from celery.app.amqp import AMQP

from celery_reliable.compat.notes import note, noted
from celery_reliable.compat.relied import Name, Part, relies_on

__all__ = [
    "OpenAMQP",
    "ask_before_sending",
    "keep_chord_headers",
    "send_anew",
]

_AMQP = "celery.app.amqp:AMQP"


@relies_on(
    Name(f"{_AMQP}._create_task_sender", used_by=f"{_AMQP}.send_task_message"),
    Name(f"{_AMQP}._producer_pool", used_by=f"{_AMQP}.producer_pool"),
    Name(f"{_AMQP}.send_task_message", used_by="celery.app.base:Celery.send_task"),
    Name(f"{_AMQP}.Connection", used_by="celery.app.base:Celery._connection"),
    part=Part.PRODUCER,
)
class OpenAMQP(AMQP):
    """Celery's AMQP with names that a subclass may override: how tasks are sent, by which
    producers, over which connections.

    Overrides ``AMQP._create_task_sender`` and ``AMQP.Connection``, and sets
    ``AMQP._producer_pool``: signals tell of a publication when its producer is chosen, and cannot
    replace it.  Checked on Celery 5.6.3 and 5.7.0.  Without it tasks are sent that the ledger knows
    nothing of, and our transports are lost where there are several brokers.
    """

    _producer_pool: Any

    def _create_task_sender(self) -> Callable[..., Any]:
        return self.sender_around(super()._create_task_sender())

    def sender_around(self, send: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function that sends every task. *send* is Celery's own."""
        return send

    @cached_property
    def Connection(self) -> Any:  # noqa: N802
        """The class of the app's connections to its broker."""
        return self.connection_class(super().Connection)

    def connection_class(self, own: Any) -> Any:
        """Return that class. *own*: the one that the project has, mostly Celery's."""
        return own

    @property
    def producers_so_far(self) -> Any:
        """The producers that were made; None before there are any."""
        return self._producer_pool

    @producers_so_far.setter
    def producers_so_far(self, pool: Any) -> None:
        self._producer_pool = pool


@relies_on(
    Name(f"{_AMQP}._producer_pool", used_by=f"{_AMQP}.producer_pool"),
    part=Part.PRODUCER,
)
def send_anew(amqp: Any) -> None:
    """Let an app forget its producers and its sender, so that it makes them anew when needed.

    Clears ``AMQP._producer_pool`` and the ``send_task_message`` that is kept: both are made once.
    Checked on Celery 5.6.3 and 5.7.0.  Without it an app that had sent something before it got its
    first task of ours goes on without records.
    """
    amqp._producer_pool = None
    # By the property, whose lock waits for a thread that is just making the former sender.
    with suppress(AttributeError):
        # A functools.cached_property of the project's own class has made none yet.
        del amqp.send_task_message


@relies_on(
    Name(f"{_AMQP}._create_task_sender", used_by=f"{_AMQP}.send_task_message"),
    part=Part.PRODUCER,
)
def ask_before_sending(amqp: Any, prepare: Callable[[], bool]) -> None:
    """Call *prepare* before each task that an app sends, until it returns False.

    Sets ``send_task_message`` of this one object, where Celery keeps what it sends with, and calls
    ``_create_task_sender``: so its class stays Celery's own, and other apps theirs.  Checked on
    Celery 5.6.3 and 5.7.0.  Without it an app that publishes before it has made its tasks records
    none of them.
    """

    def send_task_message(*args: Any, **options: Any) -> Any:
        if prepare():
            return amqp._create_task_sender()(*args, **options)
        if amqp.__dict__.get("send_task_message") is send_task_message:
            amqp.__dict__.pop("send_task_message", None)
        return amqp.send_task_message(*args, **options)

    amqp.__dict__["send_task_message"] = send_task_message


@relies_on(
    Name(
        "celery.canvas:_chord.run",
        takes=("header", "body"),
        used_by="celery.canvas:_chord.apply_async",
    ),
    part=Part.PRODUCER,
)
def keep_chord_headers(kept_in: ContextVar[Any]) -> None:
    """Keep the header of each chord in *kept_in* while the chord is being published.

    Replaces ``chord.run``: on a result backend that does not count the members of chords, it
    publishes ``celery.chord_unlock``, whose message has the ids of the members and not their names.
    Checked on Celery 5.6.3 and 5.7.0.  Without it a killed worker may lose the body of a chord of
    reliable members, if the body is a plain task.
    """
    run = chord.run
    if noted(run, "keeps_header"):
        return

    @functools.wraps(run)
    def kept(self: Any, header: Any, *args: Any, **options: Any) -> Any:
        token = kept_in.set(header)
        try:
            return run(self, header, *args, **options)
        finally:
            kept_in.reset(token)

    note(kept, "keeps_header", True)
    chord.run = kept

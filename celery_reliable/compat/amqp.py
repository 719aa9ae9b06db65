"""Celery's AMQP: the one point through which an app publishes every task."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

from celery import chord
from celery.app.amqp import AMQP

from celery_reliable.compat.relied import Name, Part, relies_on

__all__ = [
    "OpenAMQP",
    "keep_chord_headers",
    "send_anew",
]

_AMQP = "celery.app.amqp:AMQP"


@relies_on(
    Name(f"{_AMQP}._create_task_sender", used_by=f"{_AMQP}.send_task_message"),
    Name(f"{_AMQP}._producer_pool", used_by=f"{_AMQP}.producer_pool"),
    Name(f"{_AMQP}.send_task_message", used_by="celery.app.base:Celery.send_task"),
    part=Part.PRODUCER,
)
class OpenAMQP(AMQP):
    """Celery's AMQP, of which a subclass says how tasks are sent (`sender_around`, given Celery's
    own function), and by which producers (`new_producers`; None for those that Celery makes).

    Overrides ``AMQP._create_task_sender``, and sets ``AMQP._producer_pool``: signals tell of a
    publication when its producer is chosen, and cannot replace it.  Checked on Celery 5.6.3 and
    5.7.0.  Without it tasks are sent that the ledger knows nothing of.
    """

    _producer_pool: Any

    def _create_task_sender(self) -> Callable[..., Any]:
        sender: Callable[..., Any] = self.sender_around(super()._create_task_sender())
        return sender

    @property
    def producer_pool(self) -> Any:
        """The producers of the app."""
        if self._producer_pool is None:
            self._producer_pool = self.new_producers()
        return super().producer_pool

    publisher_pool = producer_pool


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
    Name(
        "celery.canvas:_chord.run",
        takes=("header", "body"),
        used_by="celery.canvas:_chord.apply_async",
    ),
    part=Part.PRODUCER,
)
@functools.cache
def keep_chord_headers(kept_in: ContextVar[Any]) -> None:
    """Keep the header of each chord in *kept_in* while the chord is being published.  Once.

    Replaces ``chord.run``: on a result backend that does not count the members of chords, it
    publishes ``celery.chord_unlock``, whose message has the ids of the members and not their names.
    Checked on Celery 5.6.3 and 5.7.0.  Without it a killed worker may lose the body of a chord of
    reliable members, if the body is a plain task.
    """
    run = chord.run

    @functools.wraps(run)
    def kept(self: Any, header: Any, *args: Any, **options: Any) -> Any:
        token = kept_in.set(header)
        try:
            return run(self, header, *args, **options)
        finally:
            kept_in.reset(token)

    chord.run = kept

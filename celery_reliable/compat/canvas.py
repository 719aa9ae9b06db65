"""Celery's canvases: what a chord waits for, which the message that polls for it does not say."""

from __future__ import annotations

import functools
from contextvars import ContextVar
from typing import Any

from celery import chord

from celery_reliable.compat.notes import note, noted
from celery_reliable.compat.relied import Name, Part, relies_on

__all__ = ["keep_chord_headers"]


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

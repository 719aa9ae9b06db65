"""What happened lately to tasks and workers off the straight way, and how often."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from celery_reliable.exceptions import LedgerRefused, LedgerUnavailable
from celery_reliable.ledger.answers import Audited
from celery_reliable.ledger.caller import Part
from celery_reliable.ledger.schema import text_of

__all__ = [
    "Audits",
    "Happenings",
    "NotedRow",
]

#: So many are kept, and so many of a kind are noted in a minute.
_MOST, _AT_ONCE = 10_000, 100
#: Counts are kept of so many names; who makes up more is counted without: that fills no memory.
_MOST_COUNTS = 10_000
#: A text of an entry is cut to so many characters.
_LONGEST = 200
#: After a note that failed none is tried for so long: where the server does not answer, whoever
#: tells of something would wait for it each time.
_PAUSE_SECONDS = 10.0


@dataclass(frozen=True)
class NotedRow:
    """What is noted of one happening.

    Attributes:
        id: of its entry in the stream; later ones have greater ids.
        at_ms: when, on the ledger's clock.
        kind: the name of the event; empty where the entry cannot be read.
        about: its fields, as JSON values.
        is_last: more of this kind in the same minute are not noted.
    """

    id: str
    at_ms: int
    kind: str
    about: Mapping[str, Any]
    is_last: bool


class Happenings(Part):
    """The notes.  Raises what `Ledger` raises, but for `note`."""

    _silent_until = 0.0

    def note(self, kind: str, about: Mapping[str, Any]) -> bool:
        """Note that something happened, once, without a second try; whether it is noted, as far as
        is known.
        """
        if time.monotonic() < self._silent_until:
            return False
        short = {
            name: value[:_LONGEST] if isinstance(value, str) else value
            for name, value in about.items()
        }
        why = [short.get(one) or "" for one in ("cause", "reason")]
        counted = [json.dumps([kind, name, *why]) for name in (short.get("name") or "", "")]
        try:
            step = self.calls.note(
                kind=kind,
                # Without half surrogates, which no terminal shows: as JSON has them.
                about=json.dumps(short),
                most=_MOST,
                at_once=_AT_ONCE,
                counted=counted[0],
                counts=_MOST_COUNTS,
                nameless=counted[1],
            )
            self._caller.run(step, 0)
        except (LedgerRefused, LedgerUnavailable):
            self._silent_until = time.monotonic() + _PAUSE_SECONDS
            return False
        return True

    def latest(self, limit: int, *, before: str = "") -> list[NotedRow]:
        """Return the latest *limit*, the latest first; those *before* an id."""
        newest = f"({before}" if before else "+"
        found = self._caller.read(
            "events",
            lambda client: client.xrevrange(self.keys.happened, max=newest, count=limit),
        )
        return [_row(id_.decode(), fields or {}) for id_, fields in found]

    def totals(self) -> dict[tuple[str, ...], int]:
        """Return how often each kind of event was noted or would have been, by kind, name of the
        task, cause and reason.
        """
        raw = self._caller.read("counts", lambda client: client.hgetall(self.keys.counts))
        counts = {text_of(name): int(value) for name, value in raw.items() if name[:1] == b"["}
        return {tuple(json.loads(name)): count for name, count in counts.items()}


def _row(id_: str, fields: Mapping[bytes, bytes]) -> NotedRow:
    try:
        about = dict(json.loads(fields[b"about"]))
        at_ms, kind = int(fields[b"at_ms"]), fields[b"kind"].decode()
    except (KeyError, TypeError, ValueError):
        return NotedRow(id_, 0, "", {}, False)
    return NotedRow(id_, at_ms, kind, about, fields.get(b"is_last") == b"1")


#: So many are kept.
_MOST_AUDITED = 10_000


class Audits(Part):
    """What operators did."""

    def note(self, about: Mapping[str, Any]) -> Audited:
        """Note what is done, as JSON values, at the ledger's time."""
        return self._caller.run(
            self.calls.audit(
                token=secrets.token_hex(8),
                about=json.dumps(about, default=str),
                most=_MOST_AUDITED,
            )
        )

    def latest(self, limit: int) -> list[tuple[int, dict[str, Any]]]:
        """Return the latest notes first, each with its time in ms; none of those that cannot be
        read.
        """
        found = self._caller.read(
            "audit", lambda client: client.xrevrange(self.keys.audit, count=limit)
        )
        notes: dict[bytes, tuple[int, dict[str, Any]]] = {}
        for _, fields in found:
            try:
                about = json.loads(fields[b"about"])
                # One that came late and twice is one.
                notes[fields[b"token"]] = int(fields[b"at_ms"]), dict(about)
            except (KeyError, TypeError, ValueError):
                continue
        return list(notes.values())

"""What operators did: notes that are kept until there are too many of them."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import Any

from celery_reliable.ledger.answers import AuditAnswer
from celery_reliable.ledger.caller import Caller
from celery_reliable.ledger.keys import Keys
from celery_reliable.ledger.transitions import Transition

__all__ = ["Audits"]

_AUDIT: Transition[AuditAnswer] = Transition("audit", AuditAnswer)
#: So many are kept.
_MOST = 10_000


class Audits:
    """The notes.  Raises what `Ledger` raises."""

    def __init__(self, caller: Caller, keys: Keys) -> None:
        self._caller = caller
        self._keys = keys

    def note(self, about: Mapping[str, Any]) -> AuditAnswer:
        """Note what is done, as JSON values, at the server's time."""
        return self._caller.call(
            _AUDIT,
            [self._keys.audit],
            [secrets.token_hex(8), json.dumps(about, default=str), _MOST],
        )

    def latest(self, limit: int) -> list[tuple[int, dict[str, Any]]]:
        """Return the latest notes first, each with its time in ms; none of those that cannot be
        read.
        """
        found = self._caller.read(
            "audit", lambda client: client.xrevrange(self._keys.audit, count=limit)
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

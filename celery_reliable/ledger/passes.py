"""Transitions of the sweeper's passes, and what one pass leaves for the next."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from celery_reliable.ledger.answers import (
    BeginPassAnswer,
    EndPassAnswer,
    RecognizeAnswer,
    SetBackAnswer,
)
from celery_reliable.ledger.answers.workers import Asked, Begun, Busy, Newer, NotDue
from celery_reliable.ledger.caller import Caller
from celery_reliable.ledger.formats import FORMAT, newer
from celery_reliable.ledger.keys import Keys
from celery_reliable.ledger.transitions import Transition

__all__ = ["Passes"]

_BEGIN_PASS: Transition[BeginPassAnswer] = Transition("begin_pass", BeginPassAnswer)
_RECOGNIZE: Transition[RecognizeAnswer] = Transition("recognize", RecognizeAnswer)
_END_PASS: Transition[EndPassAnswer] = Transition("end_pass", EndPassAnswer)
_SET_BACK: Transition[SetBackAnswer] = Transition("set_back", SetBackAnswer)
_LOOK_AHEAD: Transition[Asked] = Transition("look_ahead", Asked)


class Passes:
    """Who runs a pass, and what the next one has to know.  Raises what `Ledger` raises."""

    def __init__(self, caller: Caller, keys: Keys) -> None:
        self._caller = caller
        self._keys = keys

    def begin(
        self,
        nonce: str,
        *,
        interval_ms: int,
        ttl_ms: int,
        interruption_ms: int,
        lease_ms: int,
        expected_ms: int | str = "",
    ) -> Begun | Busy | NotDue:
        """Start a pass, unless one runs, or finished less than *interval_ms* ago.

        *nonce* names the pass, which expires after *ttl_ms*.  A pause of *interruption_ms* between
        passes means that the server or all sweepers were away: then leases of *lease_ms* get time
        to be renewed.  *expected_ms*: the server's time as the sweeper reckons it, or empty.
        """
        answer = self._caller.call(
            _BEGIN_PASS,
            [self._keys.sweep, self._keys.meta],
            [nonce, interval_ms, ttl_ms, interruption_ms, lease_ms, expected_ms, FORMAT],
            0,
        )
        if isinstance(answer, Newer):
            raise newer(answer.format, self._caller.shown, self._keys.meta, "begin_pass")
        return answer

    def recognize(self, broker: str) -> RecognizeAnswer:
        """Note which server the queues are on.

        If it is another one than before, or was emptied, the next pass looks at queued records
        before they are due.
        """
        return self._caller.call(_RECOGNIZE, [self._keys.meta], [broker])

    def end(
        self,
        nonce: str,
        report: Mapping[str, Any],
        ahead_count: str = "",
        *,
        ended_ms: int | str = "",
        seen: str = "",
    ) -> EndPassAnswer:
        """Note that a pass finished, and keep its *report*.

        *ended_ms*: the server's time as the sweeper reckons it, or empty.  *ahead_count*: the
        number of the request to look ahead that this pass has met, or empty.  *seen*: which
        workers it has seen, as the next pass is to hear it; empty: that sees all anew.
        """
        return self._caller.call(
            _END_PASS,
            [self._keys.sweep, self._keys.meta, self._keys.minutes],
            [nonce, json.dumps(dict(report)), ahead_count, ended_ms, seen],
        )

    def set_back(self, limit: int) -> SetBackAnswer:
        """After the server's clock stepped back, set back when *limit* records are due."""
        return self._caller.call(_SET_BACK, [self._keys.due, self._keys.meta], [limit])

    def look_ahead(self, *, ago_ms: int) -> Asked:
        """Ask the next pass to look at queued records before they are due.

        Messages may have been lost since *ago_ms* milliseconds ago.
        """
        return self._caller.call(_LOOK_AHEAD, [self._keys.meta], [ago_ms])

    def meta(self) -> dict[str, str]:
        """Return generation, passed_ms, grace_ms and the last pass's report."""
        raw = self._caller.read("meta", lambda client: client.hgetall(self._keys.meta))
        return {k.decode(): v.decode() for k, v in raw.items()}

"""How deep queues were at the last passes: from pass to pass in their reports, for operators.

Nobody decides by it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from celery_reliable.recovery.broker_view import BrokerView

__all__ = ["Depths", "depths_of", "note_depths"]

#: Under which name a report has them.
_NOTED = "depths"
#: How many looks are kept, and of how many queues and brokers.
_LOOKS, _MOST_QUEUES, _MOST_BROKERS = 6, 50, 5


@dataclass(frozen=True)
class Depths:
    """How deep a queue was at some looks.

    Attributes:
        at_ms: when, by the server's clock; the latest last.
        found: how many messages waited then.
    """

    at_ms: tuple[int, ...]
    found: tuple[int, ...]

    def grown(self, seconds: float) -> tuple[int, float] | None:
        """Return from which depth it has grown, and since how many seconds, if every look found
        more than the one before for at least *seconds*; else None.
        """
        first = len(self.found) - 1
        while first > 0 and self.found[first - 1] < self.found[first]:
            first -= 1
        if first < 0:
            return None
        span_seconds = (self.at_ms[-1] - self.at_ms[first]) / 1000
        return (self.found[first], span_seconds) if span_seconds >= seconds else None


def depths_of(report: Mapping[str, Any], broker: str) -> dict[str, Depths]:
    """Return what a pass's report says of the queues of a broker, by their names."""
    try:
        noted = report.get(_NOTED, {}).get(broker, {})
        at_ms = tuple(int(one) for one in noted.get("at_ms", ()))
        found = {
            str(name): Depths(at_ms[-len(depths) :], tuple(map(int, depths)))
            for name, depths in noted.get("queues", {}).items()
            if 0 < len(depths) <= len(at_ms)
        }
    except (AttributeError, TypeError, ValueError):
        # A later version may note something else.
        return {}
    return found if list(at_ms) == sorted(set(at_ms)) else {}


def note_depths(
    before: str, broker: BrokerView, name: str, queues: Sequence[str], now_ms: int, every_ms: int
) -> dict[str, Any]:
    """Return what the report of a pass says of depths: what the one *before* has, as JSON, and, if
    that is *every_ms* old, what *queues* of the broker of this *name* have now, and those that the
    report has from others.

    On a Redis only: another broker would be connected to for each look.  Raises what the broker
    raises.
    """
    try:
        noted = dict(json.loads(before or "{}").get(_NOTED, {}))
        kept = depths_of({_NOTED: noted}, name)
    except (AttributeError, TypeError, ValueError):
        noted, kept = {}, {}
    at_ms = max((list(one.at_ms) for one in kept.values()), key=len, default=[])
    is_due = not at_ms or not 0 <= now_ms - at_ms[-1] < every_ms
    if not broker.is_redis or not is_due:
        return {_NOTED: noted} if noted else {}
    if at_ms and now_ms <= at_ms[-1]:
        # The clock was set back.
        at_ms, kept = [], {}
    at_ms = [*at_ms, now_ms][-_LOOKS:]
    names = dict.fromkeys([*queues, *(one for one, past in kept.items() if any(past.found))])
    looks: dict[str, list[int]] = {}
    for queue in list(names)[:_MOST_QUEUES]:
        depth = sum(step.depth for step in broker.steps(queue, 0))
        past = kept[queue].found if queue in kept else ()
        looks[queue] = [*past, depth][-_LOOKS:]
    others = {one: noted[one] for one in list(noted)[-_MOST_BROKERS:] if one != name}
    return {_NOTED: {**others, name: {"at_ms": at_ms, "queues": looks}}}

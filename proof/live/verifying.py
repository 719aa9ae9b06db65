"""Whether the scripts on a live server do what the ledger's model says."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from celery_reliable.broker import take_text
from celery_reliable.ledger import Ledger
from proof.live.validator import LiveValidator
from proof.live.watching import Watch
from proof.traces import Rejected

__all__ = ["Verified", "verify"]


@dataclass
class Verified:
    """What was seen of a server's calls of scripts.

    Attributes:
        judged: how many of each script were checked, and are as the model says.
        unjudged: how many were not, as they concern what is older than this look, or the time.
        uncovered: how many there were of scripts that the model does not know.
        problem: the first call that the model does not allow, and why; empty when there was none.
        is_cut_short: whether it ended at the most calls that were asked for.
    """

    judged: Counter[str] = field(default_factory=Counter)
    unjudged: Counter[str] = field(default_factory=Counter)
    uncovered: Counter[str] = field(default_factory=Counter)
    problem: str = ""
    is_cut_short: bool = False


def verify(ledger: Ledger, *, seconds: float, most_calls: int) -> Verified:
    """Watch the server for *seconds*, or until *most_calls*, and compare each call with the model.

    It stops at the first call that is not allowed.  Arguments of tasks, results and exceptions are
    taken by their digest as they come.  Raises LedgerUnavailable and LedgerRefused.
    """
    watch = Watch(ledger, taking=take_text())
    found: LiveValidator | None = None
    done = Verified()
    try:
        for number, seen in enumerate(watch.calls(seconds), 1):
            if found is None:
                held = watch.held
                found = LiveValidator(held["hashes"], held["leases"], most=most_calls)
            found.take(seen.at_us, seen.calls, seen.writes)
            if number >= most_calls:
                done.is_cut_short = True
                break
    except Rejected as exc:
        done.problem = str(exc)
    if found is not None:
        done.judged, done.unjudged, done.uncovered = found.judged, found.unjudged, found.uncovered
    return done

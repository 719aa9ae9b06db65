"""Times as people and programs read them."""

from __future__ import annotations

import re
from datetime import datetime, timezone

__all__ = ["at", "iso", "parse_age", "parse_time"]

_ASKED = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_AGE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([smhd]?)")


def iso(ms: int | None) -> str | None:
    """Return a time in ISO 8601, UTC, with milliseconds; None for none."""
    if not ms:
        return None
    return datetime.fromtimestamp(ms / 1000, timezone.utc).isoformat(timespec="milliseconds")


def at(ms: int) -> str:
    """Return a time to the second for a sentence: 2026-11-22 16:40:05 UTC."""
    found = datetime.fromtimestamp(ms / 1000, timezone.utc)
    return f"{found:%Y-%m-%d %H:%M:%S} UTC"


def parse_age(text: str) -> float:
    """Return the seconds of a length of time: 90, 15m, 2h, 3d.  Raises ValueError, which says what
    one is.
    """
    match = _AGE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text[:50]!r} is no length of time: 90 (seconds), 15m, 2h or 3d.")
    return float(match[1]) * _ASKED[match[2]]


def parse_time(text: str) -> int:
    """Return the ms of a moment in ISO 8601, in UTC unless it says another zone.

    Raises ValueError, which says what one is.
    """
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise ValueError(f"{text[:50]!r} is no time: 2026-11-22T16:40:05Z.") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return round(moment.timestamp() * 1000)

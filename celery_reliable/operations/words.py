"""Times and texts as people read and write them."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any

__all__ = ["at", "moment", "parse_age", "parse_json", "printable", "utc"]

_ASKED = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_AGE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([smhd]?)")


def utc(ms: int) -> datetime:
    """Return a time in ms as one in UTC."""
    return datetime.fromtimestamp(ms / 1000, timezone.utc)


def moment(ms: int | None) -> datetime | None:
    """Return the same; None for none, and for 0."""
    return utc(ms) if ms else None


def at(when: datetime | int | None) -> str:
    """Return a time, or one in ms, to the second for a sentence: 2026-11-22 16:40:05 UTC."""
    found = when if isinstance(when, datetime) else utc(when or 0)
    return f"{found:%Y-%m-%d %H:%M:%S} UTC"


def parse_age(text: str, least: float = 0.0, most: float | None = None) -> float:
    """Return the seconds of a length of time: 90, 15m, 2h, 3d; from *least* to *most*.  Raises
    ValueError, which says what is wrong.
    """
    match = _AGE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text[:50]!r} is no length of time: 90 (seconds), 15m, 2h or 3d.")
    seconds = float(match[1]) * _ASKED[match[2]]
    if seconds < least or (most is not None and seconds > most):
        at_most = "" if most is None else f" and at most {most:g}"
        raise ValueError(f"It is at least {least:g} seconds{at_most}.")
    return seconds


def parse_json(kind: type, text: str) -> Any:
    """Return a list or an object.  Raises ValueError, which says what is wrong, and not what is
    there.
    """
    with suppress(ValueError, RecursionError):
        if isinstance(found := json.loads(text), kind):
            return found
    raise ValueError(f"This has to be a JSON {'list' if kind is list else 'object'}.")


def printable(text: str, *, keeps: str = "") -> str:
    """Return *text* on one line, with an escape for each character that a terminal would obey:
    anybody may have published it.  The characters that it *keeps* stay as they are.
    """
    return "".join(
        char if char.isprintable() or char in keeps else repr(char)[1:-1] for char in text
    )

"""What the value of a setting has to be, and how it is shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from celery_reliable.settings.urls import REDIS_SCHEMES, sanitized_url

__all__ = ["MAX_SECONDS", "expected_of", "shown_value"]

#: Longer times are mistakes (milliseconds, mostly), and sums of them must stay exact in Lua.
MAX_SECONDS: Final = 3650 * 24 * 60 * 60.0


def expected_of(value: object, rule: Mapping[str, Any]) -> str | None:
    """Return what was expected in place of `value`, or `None` when it will do."""
    kind = rule["kind"]
    if kind == "seconds":
        return _expected_seconds(value, rule["min"], above=rule["above"])
    if kind == "some_seconds":
        fits = value is None or _expected_seconds(value, 0.0, above=True) is None
        return None if fits else f"{_expected_seconds(None, 0.0, above=True)}, or None"
    if kind == "count":
        return _expected_count(value, rule["min"], rule["max"])
    if kind == "flag":
        return None if isinstance(value, bool) else "True or False"
    if kind == "namespace":
        fits = isinstance(value, str) and re.fullmatch(r"[^\s{}]+", value) is not None
        # Braces decide which part of a key chooses its hash slot; that part is the ledger's.
        return None if fits else "a text that is not empty, without whitespace and braces"
    if kind == "alias":
        fits = value is None or (isinstance(value, str) and value.strip() != "")
        return None if fits else "the name of an entry of Django's CACHES, or None"
    if kind == "folder":
        # Probes are run in a folder of their own.
        fits = value is None or (isinstance(value, str) and value.startswith("/"))
        return None if fits else "an absolute path, or None"
    return _expected_url(value)


def _expected_seconds(value: object, minimum: float, *, above: bool) -> str | None:
    # Comparisons also refuse NaN, infinity, and whole numbers that are too large for a float.
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        high_enough = value > minimum if above else value >= minimum
        if high_enough and value <= MAX_SECONDS:
            return None
    limit = f"more than {minimum:g}" if above else f"at least {minimum:g}"
    return f"a number of seconds, {limit} and at most {MAX_SECONDS:.0f}"


def _expected_count(value: object, minimum: int, maximum: int | None) -> str | None:
    is_count = isinstance(value, int) and not isinstance(value, bool)
    if is_count and value >= minimum and (maximum is None or value <= maximum):  # type: ignore[operator]
        return None
    upper = "" if maximum is None else f" and at most {maximum}"
    return f"a whole number, at least {minimum}{upper}"


def _expected_url(value: object) -> str | None:
    if value is None:
        return None
    scheme = value.partition("://")[0] if isinstance(value, str) and "://" in value else ""
    if scheme in REDIS_SCHEMES:
        return None
    known = ", ".join(f"{name}://" for name in REDIS_SCHEMES)
    return f"the URL of a Redis (beginning with one of {known}), or None for the broker's"


def shown_value(name: str, value: object) -> str:
    """Return `value` as an error or a repr shows it: no password."""
    if name != "redis_url" or value is None:
        return repr(value)
    return repr(sanitized_url(value)) if isinstance(value, str) else f"a {type(value).__name__}"

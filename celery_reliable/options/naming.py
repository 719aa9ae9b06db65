"""Options that name workers: which may run a task, and which get it first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from celery_reliable.settings import Rule, or_none, that

__all__ = ["NAMING", "naming_problems", "patterns_of"]

_LONGEST = 255


def patterns_of(value: Any) -> tuple[str, ...]:
    """Return the patterns of an option that `NAMING` accepts; none of None."""
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)


def _is_pattern(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _LONGEST


def _are_patterns(value: Any) -> bool:
    many = [value] if isinstance(value, str) else value
    is_list = isinstance(many, Sequence) and not isinstance(many, bytes) and bool(many)
    return is_list and all(map(_is_pattern, many))


_PATTERNS = or_none(that(_are_patterns, "names of workers such as ('gpu-*', 'alpha@host')"))

#: The options, each with its rule.
NAMING: dict[str, Rule] = {
    "only_workers": _PATTERNS,
    "prefer_workers": _PATTERNS,
}


def naming_problems(given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each of the options *given* that cannot work, and what it has to be."""
    for option, rule in NAMING.items():
        if option in given and (expected := rule(given[option])):
            yield option, expected

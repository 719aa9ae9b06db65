"""Options that name workers: which may run a task, and which get it first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

__all__ = ["NAMING", "naming_problems", "patterns_of"]

_LONGEST = 255


def patterns_of(value: Any) -> tuple[str, ...]:
    """Return the patterns of an option that `NAMING` accepts; none of None."""
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)


def _patterns_problem(value: Any) -> str:
    """Check names of workers, which may be patterns: say what it has to be, or "" if it will do."""
    many = [value] if isinstance(value, str) else value
    is_list = isinstance(many, Sequence) and not isinstance(many, bytes) and bool(many)
    if is_list and all(isinstance(one, str) and 0 < len(one) <= _LONGEST for one in many):
        return ""
    return "names of workers such as ('gpu-*', 'alpha@host'), or None"


#: The options, each with what says what a value has to be; "" for one that will do.
NAMING: dict[str, Callable[[Any], str]] = {
    "only_workers": _patterns_problem,
    "prefer_workers": _patterns_problem,
}


def naming_problems(given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each of the options *given* that cannot work, and what it has to be."""
    for option, problem in NAMING.items():
        if option in given and (expected := problem(given[option])):
            yield option, expected

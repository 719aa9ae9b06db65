"""What one call says in place of its task's options: checked where the call is made, and believed
within the same bounds where its message arrives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any

from celery_reliable.exceptions import ConfigurationError, refuse
from celery_reliable.model import MOST_PLACES
from celery_reliable.settings import (
    Rule,
    misfits,
    one_of,
    or_none,
    seconds,
    that,
    whole,
)

__all__ = [
    "CALL",
    "CALL_OPTIONS",
    "NAMING",
    "REFUSE",
    "call_of",
    "check_call",
    "in_force",
    "may_have_more_places",
    "patterns_of",
    "take_call",
    "take_if_exists",
]

_LONGEST = 255


def patterns_of(value: Any) -> tuple[str, ...]:
    """Return the patterns of an option that `NAMING` accepts; none of None."""
    return (value,) if isinstance(value, str) else tuple(value or ())


def _are_patterns(value: Any) -> bool:
    many = [value] if isinstance(value, str) else value
    is_list = isinstance(many, Sequence) and not isinstance(many, bytes) and bool(many)
    return is_list and all(isinstance(one, str) and 0 < len(one) <= _LONGEST for one in many)


_PATTERNS = or_none(that(_are_patterns, "names of workers such as ('gpu-*', 'alpha@host')"))

#: The options, each with its rule.
NAMING: dict[str, Rule] = {
    "only_workers": _PATTERNS,
    "prefer_workers": _PATTERNS,
}


#: Of `if_exists`: raise TaskExists.
REFUSE = "refuse"

#: The header of a message that says what its call says in place of its task's options, a mapping.
CALL = "reliable_call"

#: Whoever can publish could make a task immortal that kills its workers.
_MOST_LOSSES = 1000

#: The ledger counts in milliseconds, and 0 of them mean no limit.
_LEAST_SECONDS = 0.001

#: The options that a call may have, each with its rule.
CALL_OPTIONS: dict[str, Rule] = {
    "time_to_run_seconds": or_none(seconds(_LEAST_SECONDS)),
    "max_losses": or_none(whole(0, _MOST_LOSSES)),
    "at_most": or_none(whole(1, MOST_PLACES)),
    **NAMING,
}
#: The same, and the option that the message does not carry to the worker.
_CHECKED = {**CALL_OPTIONS, "if_exists": or_none(one_of("keep", "replay_dead", REFUSE))}


def check_call(task: Any, options: Mapping[str, Any], *, has_id: bool) -> None:
    """Raise ConfigurationError for options of a call of *task* that cannot work.  *has_id*: the
    call says which id its task has.
    """
    _check_values(task.name, options)
    refuse(_useless(task, options, has_id))


def _check_values(name: str, options: Mapping[str, Any]) -> None:
    refuse(
        f"{option}={value!r} of a call of task {name} is not {expected}. Correct it, or leave it "
        "out."
        for option, value, expected in misfits(_CHECKED, options)
    )


def _useless(task: Any, options: Mapping[str, Any], has_id: bool) -> Iterator[str]:
    """Yield a problem for each option that means nothing for a call of *task*, or two things."""
    at_most, how = options.get("at_most"), options.get("if_exists")
    about = f"at_most={at_most!r} of a call of task {task.name}: the task has"
    if at_most is not None and getattr(type(task), "at_most", None) is None:
        yield (
            f"{about} no places of which a call could have more or fewer. Give its class at_most "
            "and on_conflict, too."
        )
    elif at_most is not None and at_most > 1 and not may_have_more_places(task):
        yield (
            f"{about} unique='queued' or once_for_seconds, and one place for that. Leave one of "
            "them out."
        )
    about = f"if_exists={how!r} of a call of task {task.name}"
    if how is not None and not has_id:
        yield f"{about}: it is about the id, which is a new one without task_id. Give that too."
    if how is not None and type(task).unique == "queued":
        yield (
            f"{about}: the task has unique='queued', so that its object is the key. Leave one out."
        )


def may_have_more_places(task: Any) -> bool:
    """Whether a call of *task* may say of how many places it takes one."""
    cls = type(task)
    return (
        getattr(cls, "at_most", None) is not None
        and cls.unique != "queued"
        and cls.once_for_seconds is None
    )


def take_call(name: str, options: MutableMapping[str, Any]) -> None:
    """Move our options of a call into the headers that its message will have.

    A retry has the headers of the message before it; what it says itself takes their place.
    Raises ConfigurationError.
    """
    _check_values(name, options)
    given = {option: options.pop(option) for option in CALL_OPTIONS.keys() & options.keys()}
    given = {option: value for option, value in given.items() if value is not None}
    if given:
        headers = options.get("headers") or {}
        options["headers"] = {**headers, CALL: {**call_of(headers), **given}}


def take_if_exists(name: str, options: MutableMapping[str, Any], *, is_known: bool) -> str:
    """Take out of the options of a call what to do about a task that has its id; "" if it does not
    say.  *is_known*: the task is one of ours.  Raises ConfigurationError.
    """
    how = options.pop("if_exists", None)
    if how is not None and not is_known:
        raise ConfigurationError(
            f"if_exists={how!r} of a call of task {name}: nobody can tell whether its id is in "
            "use, as it is no task of this app with base=ReliableTask. Leave it out."
        )
    return how or ""


def call_of(headers: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return what the headers of a message say of its call; nothing that its maker could not have
    said by an option.
    """
    told = (headers or {}).get(CALL)
    if not isinstance(told, Mapping):
        return {}
    return {
        option: told[option]
        for option, rule in CALL_OPTIONS.items()
        if told.get(option) is not None and not rule(told[option])
    }


def in_force(task: Any, option: str, headers: Mapping[str, Any] | None) -> Any:
    """Return an option of a call: its own, or that of the class of *task*."""
    return call_of(headers).get(option, getattr(type(task), option, None))

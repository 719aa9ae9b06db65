"""What one call says in place of its task's options: checked where the call is made, and believed
within the same bounds where its message arrives.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, MutableMapping, Sequence
from functools import lru_cache
from typing import Any

from celery_reliable.exceptions import ConfigurationError, ConfigurationWarning, refuse
from celery_reliable.model import MOST_PLACES
from celery_reliable.settings import Rule, did_you_mean, misfits, or_none, seconds, that, whole

__all__ = [
    "CALL",
    "CALL_OPTIONS",
    "NAMING",
    "REFUSE",
    "call_of",
    "check_call",
    "check_if_exists",
    "in_force",
    "may_have_more_places",
    "patterns_of",
    "take_call",
    "take_if_exists",
]

_LONGEST = 255


def patterns_of(value: Any) -> tuple[str, ...]:
    """Return the patterns of an option that `NAMING` accepts; none of None."""
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)


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
_IF_EXISTS = ("keep", "replay_dead", REFUSE)

#: The header of a message that says what its call says in place of its task's options, a mapping.
CALL = "reliable_call"

#: Whoever can publish could make a task immortal that kills its workers.
_MOST_LOSSES = 1000

#: How similar a name must be (difflib's ratio) to count as a misspelt option.
_NEAR = 0.85
#: Options of a task that nobody else could mean.
_OF_TASKS = ("dead_letter", "if_open", "object_id", "on_conflict", "once_for_seconds")
#: The ledger counts in milliseconds, and 0 of them mean no limit.
_LEAST_SECONDS = 0.001

#: The options that a call may have, each with its rule.
CALL_OPTIONS: dict[str, Rule] = {
    "time_to_run_seconds": or_none(seconds(_LEAST_SECONDS)),
    "max_losses": or_none(whole(0, _MOST_LOSSES)),
    "at_most": or_none(whole(1, MOST_PLACES)),
    **NAMING,
}


def check_call(task: Any, options: Mapping[str, Any]) -> None:
    """Raise ConfigurationError for options of a call of *task* that cannot work, and warn of those
    that are probably misspelt.

    A call may have any options for Celery, the broker and other packages, so only what is very
    nearly the name of one of ours is told of.
    """
    for option in options:
        if said := _doubt(option):
            warnings.warn(
                f"A call of task {task.name} says {option}=..., {said}",
                ConfigurationWarning,
                stacklevel=3,
            )
    _check_values(task.name, options)
    if options.get("at_most") is not None:
        _check_places(task, options["at_most"])


def _check_values(name: str, options: Mapping[str, Any]) -> None:
    refuse(
        f"{option}={value!r} of a call of task {name} is not {expected}. Correct it, or leave it "
        "out: then the task's own counts."
        for option, value, expected in misfits(CALL_OPTIONS, options)
    )


def _check_places(task: Any, at_most: int) -> None:
    """Raise ConfigurationError where `at_most` of a call means nothing, or two things."""
    about = f"at_most={at_most!r} of a call of task {task.name}: the task has"
    if getattr(type(task), "at_most", None) is None:
        raise ConfigurationError(
            f"{about} no places of which a call could have more or fewer. Give its class at_most "
            "and on_conflict, too."
        )
    if at_most > 1 and not may_have_more_places(task):
        raise ConfigurationError(
            f"{about} unique='queued' or once_for_seconds, and one place for that. Leave one of "
            "them out."
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
    ours = CALL_OPTIONS.keys() & options.keys()
    if not ours:
        return
    _check_values(name, options)
    given = {option: value for option in ours if (value := options.pop(option)) is not None}
    if given:
        headers = options.get("headers") or {}
        options["headers"] = {**headers, CALL: {**call_of(headers), **given}}


def take_if_exists(name: str, options: MutableMapping[str, Any], *, is_known: bool) -> str:
    """Take out of the options of a call what to do about a task that has its id; "" if it does not
    say.  *is_known*: the task is one of ours.  Raises ConfigurationError.
    """
    how = options.pop("if_exists", None)
    if how is None:
        return ""
    about = f"if_exists={how!r} of a call of task {name}"
    if how not in _IF_EXISTS:
        known = ", ".join(map(repr, _IF_EXISTS))
        raise ConfigurationError(f"{about} is not one of {known}. Correct it.")
    if not is_known:
        raise ConfigurationError(
            f"{about}: nobody can tell whether its id is in use, as it is no task of this app with "
            "base=ReliableTask. Leave it out."
        )
    return str(how)


def check_if_exists(task: Any, options: Mapping[str, Any], *, has_id: bool) -> None:
    """Raise ConfigurationError where `if_exists` of a call means nothing, or two things."""
    how = options.get("if_exists")
    if how is None:
        return
    about = f"if_exists={how!r} of a call of task {task.name}"
    if not has_id:
        raise ConfigurationError(
            f"{about}: it is about the id, which is a new one without task_id. Give that too."
        )
    if type(task).unique == "queued":
        raise ConfigurationError(
            f"{about}: the task has unique='queued', so that its object is the key. Leave one out."
        )


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


@lru_cache(maxsize=1024)
def _doubt(option: str) -> str:
    """Say what is probably wrong with the name of an option of a call; "" for all others."""
    if option in CALL_OPTIONS or option == "if_exists":
        return ""
    if option in _OF_TASKS:
        return "which is an option of the task, and not of one call. Give it to the task."
    known = (*CALL_OPTIONS, "if_exists", *_OF_TASKS)
    question = did_you_mean(option, known, _NEAR)
    return question and f"which is no option. {question}"


def in_force(task: Any, option: str, headers: Mapping[str, Any] | None) -> Any:
    """Return an option of a call: its own, or that of the class of *task*."""
    if headers and CALL in headers:
        told = call_of(headers)
        if option in told:
            return told[option]
    return getattr(type(task), option, None)

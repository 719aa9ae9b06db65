"""What one call says in place of its task's options: checked where the call is made, and believed
within the same bounds where its message arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

from celery_reliable.exceptions import ConfigurationError
from celery_reliable.options.bounds import seconds_problem, whole_number_problem
from celery_reliable.options.naming import NAMING

__all__ = [
    "CALL",
    "CALL_OPTIONS",
    "MOST_LOSSES",
    "REFUSE",
    "call_of",
    "check_call",
    "check_if_exists",
    "in_force",
    "take_call",
    "take_if_exists",
]

#: Of `if_exists`: raise TaskExists.
REFUSE = "refuse"
_IF_EXISTS = ("keep", "replay_dead", REFUSE)

#: The header of a message that says what its call says in place of its task's options, a mapping.
CALL = "reliable_call"

#: Whoever can publish could make a task immortal that kills its workers.
MOST_LOSSES = 1000

#: The options that a call may have, each with what says what a value has to be; "" for one that
#: will do.
CALL_OPTIONS: dict[str, Callable[[Any], str]] = {
    "time_to_run_seconds": seconds_problem,
    "max_losses": lambda value: whole_number_problem(value, 0, MOST_LOSSES),
    **NAMING,
}


def check_call(name: str, options: Mapping[str, Any]) -> None:
    """Raise ConfigurationError for options of a call of the task *name* that cannot work."""
    told = [
        f"{option}={options[option]!r} of a call of task {name} is not {expected}. Correct it, or "
        "leave it out: then the task's own counts."
        for option in sorted(CALL_OPTIONS.keys() & options.keys())
        if options[option] is not None and (expected := CALL_OPTIONS[option](options[option]))
    ]
    if told:
        raise ConfigurationError(" ".join(told), problems=tuple(told))


def take_call(name: str, options: MutableMapping[str, Any]) -> None:
    """Move our options of a call into the headers that its message will have.

    A retry has the headers of the message before it; what it says itself takes their place.
    Raises ConfigurationError.
    """
    ours = CALL_OPTIONS.keys() & options.keys()
    if not ours:
        return
    check_call(name, options)
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
    problem = ""
    if how not in _IF_EXISTS:
        known = ", ".join(map(repr, _IF_EXISTS))
        problem = f"if_exists={how!r} of a call of task {name} is not one of {known}. Correct it."
    elif not is_known:
        problem = (
            f"if_exists={how!r} of a call of task {name}: nobody can tell whether its id is in "
            "use, as it is no task of this app with base=ReliableTask. Leave it out."
        )
    if problem:
        raise ConfigurationError(problem, problems=(problem,))
    return str(how)


def check_if_exists(name: str, how: str, *, has_id: bool, is_unique: bool) -> None:
    """Raise ConfigurationError where `if_exists` of a call means nothing, or two things."""
    problem = ""
    if not has_id:
        problem = "it is about the id, which is a new one without task_id. Give that too."
    elif is_unique:
        problem = "the task has unique='queued', so that its object is the key. Leave one out."
    if problem:
        problem = f"if_exists={how!r} of a call of task {name}: {problem}"
        raise ConfigurationError(problem, problems=(problem,))


def call_of(headers: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return what the headers of a message say of its call; nothing that its maker could not have
    said by an option.
    """
    told = (headers or {}).get(CALL)
    if not isinstance(told, Mapping):
        return {}
    return {
        option: told[option]
        for option, problem in CALL_OPTIONS.items()
        if told.get(option) is not None and not problem(told[option])
    }


def in_force(task: Any, option: str, headers: Mapping[str, Any] | None) -> Any:
    """Return an option of a call: its own, or that of the class of *task*."""
    if headers and CALL in headers:
        told = call_of(headers)
        if option in told:
            return told[option]
    return getattr(type(task), option, None)

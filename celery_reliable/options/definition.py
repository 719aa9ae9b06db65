"""The options of a task's class, checked when it is defined: which cannot work, and which are
probably misspelt.  Nothing here talks to a server.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from celery_reliable.exceptions import ConfigurationError
from celery_reliable.model import MOST_PLACES
from celery_reliable.options.bounds import is_number, seconds_problem, whole_number_problem
from celery_reliable.options.naming import NAMING, naming_problems
from celery_reliable.options.object_id import check_object_id_spec
from celery_reliable.options.rates import is_per_object, rate_problem

__all__ = [
    "ALWAYS",
    "OPTIONS",
    "TaskObject",
    "doubts",
    "is_cut_short",
    "object_of",
    "options_without_base",
    "problems",
    "refuse",
]

_ON_CONFLICT = ("skip", "retry", "fail", "wait")
_UNIQUE = _PLACE = ("running", "queued")
#: The `dead_letter` of a task whose expected failures are dead letters too.
ALWAYS = "always"

#: How similar a name must be (difflib's ratio) to count as a misspelt option.  A class's attributes
#: may be anything, so they must be more similar than a decorator's options.
_NEAR_OPTION, _NEAR_ATTRIBUTE = 0.85, 0.9
#: A shorter name with which an option begins is too common a word to be a misspelt option.
_LEAST_BEGINNING = 8


@dataclass(frozen=True, slots=True)
class TaskObject:
    """How the calls of a task say which object they are about."""

    #: The name of an argument, or a callable.
    spec: str | Callable[..., object]
    #: What the task's callers give, without ``self``.
    signature: inspect.Signature
    #: The callable is given the task before the arguments.
    takes_task: bool = False
    #: The callable is given the arguments by name.
    by_name: bool = False

    def spec_for(self, task: Any) -> str | Callable[..., object]:
        """Return the name, or what is called with the arguments of a call of *task*."""
        if self.takes_task:
            assert callable(self.spec)
            return partial(self.spec, task)
        return self.spec


def object_of(cls: Any) -> TaskObject | None:
    """Return how calls of a task's class say which object they are about; None if they do not.

    A function is a method only if its first parameter is ``self``, because Celery also puts the
    options of a decorator into a class.  Raises ConfigurationError.
    """
    found = inspect.getattr_static(cls, "object_id")
    if found is None:
        return None
    spec, takes_task = found, False
    if isinstance(found, (staticmethod, classmethod)):
        spec = found.__get__(None, cls)
    elif callable(found) and hasattr(type(found), "__get__"):
        takes_task = next(iter(_parameters_of(found)), "") == "self"
    signature = _signature_of_run(cls)
    told = partial(spec, None) if takes_task else spec
    by_name = check_object_id_spec(told, signature, cls.name)
    return TaskObject(spec, signature, takes_task, by_name)


def _parameters_of(function: Any) -> list[str]:
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        # Some functions in C have no signature.
        return []


def _signature_of_run(cls: Any) -> inspect.Signature:
    signature = inspect.signature(cls.run)
    parameters = list(signature.parameters.values())
    # A bound task's function, or a method, has the task itself as its first parameter; callers
    # do not give it.
    if isinstance(inspect.getattr_static(cls, "run"), staticmethod) or not parameters:
        return signature
    if parameters[0].kind is inspect.Parameter.VAR_POSITIONAL:
        return signature
    return signature.replace(parameters=parameters[1:])


def problems(cls: Any, base: Any) -> list[str]:
    """Return what cannot work about a task's class: names, values, and what to change.

    *base*: the class whose options and attributes they are.
    """
    wrong = [
        f"{option}={getattr(cls, option)!r} of task {cls.name} is not {expected}. "
        "Correct it, or leave it out."
        for option, expected in (
            *_wrong_values(cls),
            *_wrong_rates(cls),
            *_wrong_places(cls, base),
        )
    ]
    if not cls.acks_late:
        wrong.append(
            f"acks_late={cls.acks_late!r} of task {cls.name} asks for at most one run, and a task "
            f"of {base.__name__}'s that loses its worker runs again. Leave it out; or, for a task "
            "that must not run again, say max_losses=0 (it is a dead letter then) or take another "
            "base."
        )
    return wrong + [
        f"Task {cls.name} has {name!r} of its own, which hides {base.__name__}'s: {purpose}. "
        "Give yours another name."
        for name, purpose in _taken_names(cls)
        if inspect.getattr_static(cls, name) is not base.__dict__[name]
    ]


def _wrong_values(cls: Any) -> Iterator[tuple[str, str]]:
    """Yield each option that cannot work, and what it has to be."""
    for option, known in (("on_conflict", _ON_CONFLICT), ("unique", _UNIQUE), ("place", _PLACE)):
        if getattr(cls, option) not in known:
            yield option, f"one of {', '.join(map(repr, known))}"
    if inspect.getattr_static(cls, "object_id") is None:
        for option, default in (("unique", "running"), ("once_for_seconds", None)):
            if getattr(cls, option) != default:
                yield option, "of use without object_id, which says what the object is"
    if cls.max_losses is not None and (expected := whole_number_problem(cls.max_losses, 0)):
        yield "max_losses", f"{expected}, or None for the setting MAX_LOSSES"
    for option in ("time_to_run_seconds", "once_for_seconds"):
        seconds = getattr(cls, option)
        if seconds is not None and (expected := seconds_problem(seconds)):
            yield option, expected
    if not _is_dead_letter(cls.dead_letter):
        yield "dead_letter", f"True, False or {ALWAYS!r}"
    yield from naming_problems(
        {name: getattr(cls, name) for name in NAMING if getattr(cls, name) is not None}
    )


def _wrong_rates(cls: Any) -> Iterator[tuple[str, str]]:
    if cls.rate is not None and (expected := rate_problem(cls.rate)):
        yield "rate", expected
    elif is_per_object(cls.rate) and inspect.getattr_static(cls, "object_id") is None:
        yield "rate", "of use without object_id, which says what the object is"


def _wrong_places(cls: Any, base: Any) -> Iterator[tuple[str, str]]:
    most, has_object = cls.at_most, inspect.getattr_static(cls, "object_id") is not None
    if most is not None and (
        isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= MOST_PLACES
    ):
        yield "at_most", f"a whole number from 1 to {MOST_PLACES}, or None"
    elif most is not None and _says_nothing_of("on_conflict", cls, base):
        yield "at_most", "of use without on_conflict, which says what a task does without a place"
    elif most is not None and most > 1 and cls.unique == "queued":
        yield (
            "at_most",
            "of use with unique='queued': a call is answered with one task, and not with several",
        )
    elif most is not None and most > 1 and cls.once_for_seconds is not None:
        yield (
            "at_most",
            "of use with once_for_seconds: a success keeps one place, and the others go on",
        )
    if cls.on_conflict == "wait":
        if not has_object and most is None:
            yield "on_conflict", "of use without object_id or at_most: there is nothing to wait for"
        if cls.unique == "queued":
            yield (
                "on_conflict",
                "of use with unique='queued': a call is answered with the task that has the object",
            )
    elif cls.place == "queued":
        yield "place", "of use without on_conflict='wait': what finds no place waits for one"


def _says_nothing_of(option: str, cls: Any, base: Any) -> bool:
    return not any(option in owner.__dict__ for owner in cls.__mro__[: cls.__mro__.index(base)])


def _taken_names(cls: Any) -> Iterator[tuple[str, str]]:
    yield "attempt", "the number that your tables compare"
    yield "is_reliable", "the mark by which the package knows its tasks"
    if cls.time_to_run_seconds:
        yield "touch", "without it time_to_run_seconds cannot begin anew"
        yield "seconds_left", "it tells what is left of time_to_run_seconds"


def doubts(cls: Any, base: Any) -> list[str]:
    """Return warnings: misspelt options, and a time to run that a time limit cuts short."""
    found = [
        f"Task {cls.name} says {name}={value!r}, which is no option. Did you mean {near!r}?"
        for name, value, near in _misspelt(cls, base)
    ]
    seconds, limit = cls.time_to_run_seconds, cls.time_limit
    if is_cut_short(seconds, limit):
        found.append(
            f"Task {cls.name} says time_to_run_seconds={seconds:g} with a time_limit of {limit:g}: "
            "the limit ends it first, and touch() does not move the limit. Set time_to_run_seconds "
            "below it, or leave one of them out."
        )
    return found


def is_cut_short(time_to_run_seconds: object, time_limit: object) -> bool:
    """Whether Celery's limit ends an attempt before its time to run is over."""
    seconds, limit = time_to_run_seconds, time_limit
    return bool(is_number(seconds) and is_number(limit) and seconds >= limit)  # type: ignore[operator]


def _misspelt(cls: Any, base: Any) -> Iterator[tuple[str, Any, str]]:
    # Only names are compared: to read the attribute `app` would bind the base to an app.
    known = set(dir(base))
    for owner in cls.__mro__[: cls.__mro__.index(base)]:
        is_decorated = "_decorated" in owner.__dict__
        for name, value in owner.__dict__.items():
            if name.startswith("_") or name in known:
                continue
            near = _near(name, _NEAR_OPTION if is_decorated else _NEAR_ATTRIBUTE)
            # A user's own attribute may be anything, so it also has to have a value that fits.
            if near and (is_decorated or _would_fit(near, value)):
                yield name, value, near


def _near(name: str, cutoff: float) -> str:
    found = difflib.get_close_matches(name.lower(), OPTIONS, n=1, cutoff=cutoff)
    if found:
        return str(found[0])
    is_beginning = len(name) >= _LEAST_BEGINNING
    return next((o for o in OPTIONS if is_beginning and o.startswith(f"{name}_")), "")


def options_without_base(cls: Any) -> list[str]:
    """Return our options that a decorator gave to a task of another base.

    Attributes of a class that a user wrote are left out, as they may mean something else.
    """
    own = cls.__dict__
    if "_decorated" not in own:
        return []
    return [option for option in OPTIONS if option in own and _would_fit(option, own[option])]


def _would_fit(option: str, value: Any) -> bool:
    return bool(OPTIONS[option](value))


def _is_dead_letter(value: Any) -> bool:
    return isinstance(value, bool) or value == ALWAYS


def _fits(problem: Callable[[Any], str], value: Any) -> bool:
    return not problem(value)


#: The options of a task, each with a rough test of its value.
OPTIONS: dict[str, Callable[[Any], bool]] = {
    "object_id": lambda value: isinstance(value, str) or callable(value),
    "on_conflict": lambda value: value in _ON_CONFLICT,
    "unique": lambda value: value in _UNIQUE,
    "at_most": is_number,
    "place": lambda value: value in _PLACE,
    "once_for_seconds": is_number,
    "time_to_run_seconds": is_number,
    "max_losses": is_number,
    "dead_letter": _is_dead_letter,
    **{name: partial(_fits, wrong) for name, wrong in NAMING.items()},
    "rate": lambda value: not rate_problem(value),
}


def refuse(found: Iterable[str]) -> None:
    """Raise one ConfigurationError for all problems in *found*, if there are any."""
    told = tuple(found)
    if told:
        raise ConfigurationError(" ".join(told), problems=told)

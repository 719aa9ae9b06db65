"""The options of a task's class: checked when it is defined (which cannot work, and which are
probably misspelt), and what follows from them for a call.  Nothing here talks to a server.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from celery_reliable.model import Rate, Room, TaskRef
from celery_reliable.options.calls import CALL_OPTIONS, call_of, in_force, may_have_more_places
from celery_reliable.options.object_id import (
    RATE,
    check_object_id_spec,
    object_key,
    parsed_rate,
    resolve_object_id,
)
from celery_reliable.settings import Rule, misfits, nearest, one_of, or_none, that, whole

__all__ = [
    "ALWAYS",
    "OPTIONS",
    "TaskObject",
    "TaskOptions",
    "doubts",
    "id_of",
    "is_kept_dead",
    "is_limited",
    "is_of_object",
    "is_reliable",
    "is_unique",
    "keep_ms",
    "key_of",
    "names_workers",
    "object_of",
    "options_without_base",
    "problems",
    "rate_of",
    "room_of",
    "signature_of_run",
    "stands_in_line",
    "task_ref",
]

#: The object of a task that names none, and is limited as a whole.
_ALL = "all"


class TaskOptions:
    """The options that a reliable task has beside Celery's own.  `definition` checks them."""

    #: The name of the argument that names the object, or a callable that gets all the arguments,
    #: defaults too, in the task's own order, and returns an int, a str, a UUID, bytes, or a tuple
    #: of these. In a class it is a ``staticmethod`` or a ``classmethod``. None: no object.
    object_id: str | Callable[..., Any] | None = None
    #: What a task does when another task holds its object: ``"skip"`` (do nothing), ``"fail"``
    #: (raise ObjectBusy) or ``"wait"`` (stand in line in the ledger, in the order of publication,
    #: until there is a place; ``"retry"`` is the same).
    on_conflict: str = "skip"
    #: How many tasks may have the object at a time, 100 at most; without an `object_id`, how many
    #: tasks of this name run at a time in the whole fleet. With it say `on_conflict`. None: one
    #: task has an object, and tasks without an object are not limited. A call may say another.
    at_most: int | None = None
    #: With ``on_conflict="wait"``, since when a task has its place: ``"running"`` (each attempt
    #: takes it when it begins) or ``"queued"`` (taken by the publication: what finds no place
    #: stands in line, and is in no queue). It is free when the task has ended.
    place: str = "running"
    #: Since when a task holds its object: ``"running"`` (each attempt takes it when it begins) or
    #: ``"queued"`` (taken by the publication; see `apply_async`). It is free when the task has
    #: ended.
    unique: str = "running"
    #: Seconds for which the object stays held after a success; None: not at all.
    once_for_seconds: float | None = None
    #: Seconds that an attempt may run without a `touch` before it counts as stuck, is lost, and
    #: the task runs again; None: no limit.
    time_to_run_seconds: float | None = None
    #: How many losses the task may have; with one more it is dead-lettered. None: the setting
    #: `MAX_LOSSES`. 0: for a task that must not run again when its process dies.
    max_losses: int | None = None
    #: How often attempts may begin in the whole fleet, as Celery writes it: ``"100/m"`` (``/s``,
    #: ``/m``, ``/h``). They are spread evenly; what comes too early waits in the ledger for its
    #: moment. ``"100/m per object"``: each object of `object_id` has that rate for itself. None: no
    #: limit. (Celery's own ``rate_limit`` is one of each worker.)
    rate: str | None = None
    #: Whether a task that failed for good is kept as a dead letter: True (but not by an error that
    #: Celery's own ``throws`` names as expected), ``"always"`` (by such an error too) or False.
    dead_letter: bool | str = True
    #: Names of the workers that may run the task, as patterns: ``("gpu-*", "alpha@host")``. One
    #: without an ``@`` is about what stands before it in a worker's name. None: any worker.
    only_workers: str | Sequence[str] | None = None
    #: Names of the workers that get the task first, as patterns, the most preferred first. While
    #: none of these is alive, the task goes to its usual queue. None: no worker is preferred.
    prefer_workers: str | Sequence[str] | None = None


#: The `dead_letter` of a task whose expected failures are dead letters too.
ALWAYS = "always"

#: How similar a name must be (difflib's ratio) to count as a misspelt option.  A class's attributes
#: may be anything, so they must be more similar than a decorator's options.
_NEAR_OPTION, _NEAR_ATTRIBUTE = 0.85, 0.9
#: A shorter name with which an option begins is too common a word to be a misspelt option.
_LEAST_BEGINNING = 8

#: Attributes of the base that a task must not hide, with what they are for.
_TAKEN = {
    "attempt": "the number that your tables compare",
    "is_reliable": "the mark by which the package knows its tasks",
}
#: The same for a task with `time_to_run_seconds`.
_TAKEN_BY_TIME = {
    "touch": "without it time_to_run_seconds cannot begin anew",
    "seconds_left": "it tells what is left of time_to_run_seconds",
}


@dataclass(frozen=True, slots=True)
class TaskObject:
    """How the calls of a task say which object they are about."""

    #: The name of an argument, or a callable.
    spec: str | Callable[..., object]
    #: What the task's callers give, without ``self``.
    signature: inspect.Signature

    def id_of(self, task: Any, args: Any, kwargs: Any) -> object:
        """Return the object id that a call of *task* gives.  Raises ObjectIdError."""
        return resolve_object_id(self.spec, self.signature, task.name, args or (), kwargs or {})


def object_of(cls: Any) -> TaskObject | None:
    """Return how calls of a task's class say which object they are about; None if they do not.

    A function is no method, because Celery also puts the options of a decorator into a class.
    Raises ConfigurationError.
    """
    spec = inspect.getattr_static(cls, "object_id")
    if spec is None:
        return None
    if isinstance(spec, (staticmethod, classmethod)):
        spec = spec.__get__(None, cls)
    signature = signature_of_run(cls)
    check_object_id_spec(spec, signature, cls.name)
    return TaskObject(spec, signature)


def signature_of_run(cls: Any) -> inspect.Signature:
    """Return the arguments that callers of a task give."""
    # A bound task's function, or a method, has the task itself as its first parameter; callers do
    # not give it.
    return inspect.signature(inspect.getattr_static(cls, "run").__get__(cls, cls))


def problems(cls: Any, base: Any) -> list[str]:
    """Return what cannot work about a task's class: names, values, and what to change.

    *base*: the class whose options and attributes they are.
    """
    given = {option: getattr(cls, option) for option in OPTIONS}
    wrong = [
        f"{option}={value!r} of task {cls.name} is not {expected}. Correct it, or leave it out."
        for option, value, expected in ([*misfits(OPTIONS, given)] or _useless(cls, base))
    ]
    if not cls.acks_late:
        wrong.append(
            f"acks_late={cls.acks_late!r} of task {cls.name} asks for at most one run, and a task "
            f"of {base.__name__}'s that loses its worker runs again. Leave it out; or, for a task "
            "that must not run again, say max_losses=0 (it is a dead letter then) or take another "
            "base."
        )
    taken = _TAKEN | (_TAKEN_BY_TIME if cls.time_to_run_seconds else {})
    return wrong + [
        f"Task {cls.name} has {name!r} of its own, which hides {base.__name__}'s: {purpose}. "
        "Give yours another name."
        for name, purpose in taken.items()
        if inspect.getattr_static(cls, name) is not base.__dict__[name]
    ]


def _useless(cls: Any, base: Any) -> Iterator[tuple[str, Any, str]]:
    """Yield each option that does nothing beside the others, or contradicts them, as `misfits`."""
    has_object = inspect.getattr_static(cls, "object_id") is not None
    no_object = "of use without object_id, which says what the object is"
    own = cls.__mro__[: cls.__mro__.index(base)]
    has_places, waits = cls.at_most is not None, cls.on_conflict in ("wait", "retry")
    is_queued, is_kept = cls.unique == "queued", cls.once_for_seconds is not None
    has_more = has_places and cls.at_most > 1
    rules = (
        ("unique", not has_object and is_queued, no_object),
        ("once_for_seconds", not has_object and is_kept, no_object),
        ("rate", not has_object and parsed_rate(cls.rate)[1], no_object),
        (
            "at_most",
            has_places and not any("on_conflict" in owner.__dict__ for owner in own),
            "of use without on_conflict, which says what a task does without a place",
        ),
        (
            "at_most",
            has_more and is_queued,
            "of use with unique='queued', where a call is answered with one task",
        ),
        (
            "at_most",
            has_more and is_kept,
            "of use with once_for_seconds: a success keeps only one of the places",
        ),
        (
            "on_conflict",
            # An abstract base says it for those of its tasks that have an object.
            waits
            and not (has_object or has_places)
            and any(
                "on_conflict" in owner.__dict__ and not owner.__dict__.get("abstract")
                for owner in own
            ),
            "of use without object_id or at_most: there is nothing to wait for",
        ),
        (
            "place",
            cls.place == "queued" and is_queued,
            "of use with unique='queued': a publication that has the object has its place",
        ),
        (
            "place",
            cls.place == "queued" and not waits,
            "of use without on_conflict='wait': what finds no place waits for one",
        ),
    )
    return ((name, getattr(cls, name), why) for name, is_useless, why in rules if is_useless)


def doubts(cls: Any, base: Any) -> Iterator[str]:
    """Yield warnings of options that are probably misspelt."""
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
                yield (
                    f"Task {cls.name} says {name}={value!r}, which is no option. "
                    f"Did you mean {near!r}?"
                )


def _near(name: str, cutoff: float) -> str:
    is_beginning = len(name) >= _LEAST_BEGINNING
    longer = (one for one in OPTIONS if is_beginning and one.startswith(f"{name}_"))
    return nearest(name, OPTIONS, cutoff) or next(longer, "")


def options_without_base(cls: Any) -> list[str]:
    """Return our options that a decorator gave to a task of another base.

    Attributes of a class that a user wrote are left out, as they may mean something else.
    """
    own = cls.__dict__
    if "_decorated" not in own:
        return []
    return [option for option in OPTIONS if option in own and _would_fit(option, own[option])]


def _would_fit(option: str, value: Any) -> bool:
    return value is not None and not OPTIONS[option](value)


#: The options of a task, each with its rule.
OPTIONS: dict[str, Rule] = {
    "object_id": or_none(
        that(lambda one: isinstance(one, str) or callable(one), "an argument's name, a callable")
    ),
    "on_conflict": one_of("skip", "fail", "wait", "retry"),
    "unique": one_of("running", "queued"),
    "place": one_of("running", "queued"),
    "once_for_seconds": CALL_OPTIONS["time_to_run_seconds"],
    "dead_letter": one_of(True, False, ALWAYS),
    "rate": RATE,
    **CALL_OPTIONS,
    "max_losses": or_none(whole(0), "None for the setting MAX_LOSSES"),
}


def key_of(task: Any, args: Any, kwargs: Any) -> str | None:
    """Return the name of the lock that a call of *task* needs; None if it has no object.

    Raises ObjectIdError when the arguments do not give the object's id.
    """
    found: TaskObject | None = getattr(type(task), "_reliable_object", None)
    if found is None:
        # The whole task is the object.
        has_places = getattr(type(task), "at_most", None) is not None
        return object_key(task.name, _ALL) if has_places else None
    return object_key(task.name, found.id_of(task, args, kwargs), found.spec)


def id_of(task: Any, args: Any, kwargs: Any) -> object:
    """Return the object id that a call of *task* gives; None if the task names no object.

    Raises ObjectIdError when the arguments do not give it.
    """
    found: TaskObject | None = getattr(type(task), "_reliable_object", None)
    return None if found is None else found.id_of(task, args, kwargs)


def is_kept_dead(task: Any, error: object) -> bool:
    """Whether a task becomes a dead letter that ended for good; *error*: None if by no failure."""
    wanted = type(task).dead_letter
    is_expected = bool(task.throws) and isinstance(error, task.throws)
    return bool(wanted) and (wanted == ALWAYS or not is_expected)


def is_of_object(task: Any, object_id: str, args: Any, kwargs: Any) -> bool:
    """Whether a call of *task* is about the object whose id is given as text: as it is, or as JSON
    for a list of several values.
    """
    # The task itself fails where its arguments name no object; else the text is no list.
    with suppress(ValueError):
        key = key_of(task, args, kwargs)
        if key == object_key(task.name, object_id):
            return True
        is_list = key is not None and object_id.startswith("[")
        return is_list and key == object_key(task.name, json.loads(object_id))
    return False


def room_of(
    task: Any, object_key: str | None, headers: Mapping[str, Any] | None = None
) -> Room | None:
    """Return the object of a call with its places; None if it is about none.

    A call may say of how many places it takes one, where its task says so (`at_most`).
    """
    own = call_of(headers).get("at_most") if may_have_more_places(task) else None
    places = own or getattr(type(task), "at_most", None) or 1
    return None if object_key is None else Room(object_key, places, is_own=own is not None)


def stands_in_line(task: Any) -> bool:
    """Whether *task* waits in line for its object."""
    return getattr(type(task), "on_conflict", "") in ("wait", "retry")


def is_unique(task: Any) -> bool:
    """Whether *task* holds its object from its publication to its settlement."""
    return bool(getattr(type(task), "unique", "") == "queued")


def keep_ms(task: Any) -> int:
    """Return for how many ms the object of *task* is kept after a success; 0: not at all."""
    return int((getattr(type(task), "once_for_seconds", None) or 0) * 1000)


def is_limited(task: Any) -> bool:
    """Whether attempts of *task* may begin only so often."""
    return bool(getattr(type(task), "rate", None))


def rate_of(task: Any, args: Any, kwargs: Any) -> Rate | None:
    """Return the rate that a call of *task* counts to; None if it has none.

    Raises ObjectIdError when the arguments do not give the id of the object whose rate it is.
    """
    interval_us, is_per_object = parsed_rate(getattr(type(task), "rate", None))
    if not interval_us:
        return None
    key = f"{task.name} {key_of(task, args, kwargs)}" if is_per_object else task.name
    return Rate(key, interval_us)


def is_reliable(task: object) -> bool:
    """Whether *task* is one of ours.

    Only its class is asked: attributes of the task itself belong to the user.
    """
    return bool(getattr(type(task), "is_reliable", False))


def names_workers(app: Any) -> bool:
    """Whether a task of *app* names the workers that may run it, or should."""
    return any(
        is_reliable(task)
        and (type(task).only_workers is not None or type(task).prefer_workers is not None)
        for task in app.tasks.values()
    )


def task_ref(task: Any, task_id: str, headers: Mapping[str, Any] | None) -> TaskRef:
    """Return what the ledger needs to know about a call of *task*, whose message has *headers*."""
    seconds = in_force(task, "time_to_run_seconds", headers)
    losses = in_force(task, "max_losses", headers)
    return TaskRef(task_id, task.name, losses, int(seconds * 1000) if seconds else 0)

"""Which object a task works on: from a call's arguments to the name of its lock.

Pure: nothing here talks to a server.
"""

from __future__ import annotations

import hashlib
import inspect
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias
from uuid import UUID

from celery_reliable.exceptions import ConfigurationError, ObjectIdError, said
from celery_reliable.settings import Rule, did_you_mean, or_none, that

__all__ = [
    "RATE",
    "ObjectIdSpec",
    "check_object_id_spec",
    "object_key",
    "parsed_rate",
    "resolve_object_id",
]

_SECONDS = {"s": 1, "m": 60, "h": 3600}
_RATE = re.compile(r"(\d{1,7}(?:\.\d{1,6})?)/([smh])( per object)?")
#: A day between two, and a million a second.
_LONGEST_US, _SHORTEST_US = 86_400_000_000, 1


def parsed_rate(rate: object) -> tuple[int, bool]:
    """Return the microseconds between two beginnings (0 if it is no rate), and whether each object
    has the rate for itself.  Otherwise all calls of the task share the rate.
    """
    match = _RATE.fullmatch(rate) if isinstance(rate, str) else None
    count = float(match[1]) if match else 0.0
    if match is None or not count:
        return 0, False
    interval_us = round(_SECONDS[match[2]] * 1_000_000 / count)
    return interval_us if _SHORTEST_US <= interval_us <= _LONGEST_US else 0, match[3] is not None


RATE: Rule = or_none(
    that(
        lambda rate: parsed_rate(rate)[0],
        "a rate such as '100/m' (a number, and /s, /m or /h: per second, minute or hour; one a day "
        "at least), or such as '100/m per object'",
    )
)


#: How a task says what its object is: the name of one of its arguments, or a callable that takes
#: the task's own arguments and returns the object id.
ObjectIdSpec: TypeAlias = str | Callable[..., object]

# 128 bits, so that two objects never share a key by chance.
_KEY_LENGTH = 32

_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

_EXPECTED = "an int, a str, a UUID, bytes, or a tuple of these"


def check_object_id_spec(spec: ObjectIdSpec, signature: inspect.Signature, task_name: str) -> None:
    """Check a task's `object_id` when the task is defined.

    A callable with a signature is checked against the task's arguments.  What it returns can only
    be checked when the task is called.

    Args:
        spec: what the task says.
        signature: that of the task's own arguments, without `self`.
        task_name: for the error.

    Raises:
        ConfigurationError: the task has no such argument, or the callable does not take the task's
            arguments.
    """
    if callable(spec):
        _check_callable(spec, signature, task_name)
        return
    names = list(signature.parameters)
    takes_any = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
    if spec in names or (takes_any and spec):
        return
    listed = f"Its arguments are {', '.join(names)}." if names else "It takes no arguments."
    way_out = did_you_mean(spec, names) or listed
    raise ConfigurationError(
        f"Task {task_name!r}: object_id={spec!r} is not an argument of the task. {way_out}"
    )


def _check_callable(
    spec: Callable[..., object], signature: inspect.Signature, task_name: str
) -> None:
    try:
        taken = inspect.signature(spec)
    except (TypeError, ValueError):
        # Some callables in C have no signature.
        return
    parameters = signature.parameters.values()
    arguments = OrderedDict((p.name, None) for p in parameters if p.kind not in _VARIABLE)
    bind = taken.bind if len(arguments) == len(parameters) else taken.bind_partial
    example = inspect.BoundArguments(signature, arguments)
    try:
        bind(*example.args, **example.kwargs)
    except TypeError as error:
        raise ConfigurationError(
            f"Task {task_name!r}: its object_id callable takes {taken}, and the task's arguments "
            f"are {signature} ({error}). It is given all of them, those with a default too: let it "
            "take what the task takes (`*args, **kwargs` for what it does not look at)."
        ) from None


def resolve_object_id(
    spec: ObjectIdSpec,
    signature: inspect.Signature,
    task_name: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> object:
    """Return the object id that one call gives.

    Args:
        spec: the task's `object_id`, as accepted by `check_object_id_spec`.
        signature: that of the task's own arguments, without `self`.
        task_name: for the error.
        args: positional arguments of the call.
        kwargs: keyword arguments of the call.

    Returns:
        The value as it was given, or the argument's default. `object_key` checks its type.

    Raises:
        ObjectIdError: the call lacks the argument, or the callable raised.
    """
    try:
        # If other arguments are missing, the call of the task itself raises that.
        bound = signature.bind_partial(*args, **kwargs)
    except TypeError as error:
        raise ObjectIdError(
            f"Task {task_name!r} was called with arguments that it does not take ({error}), so "
            "the id of its object cannot be told.",
            task_name=task_name,
        ) from error
    bound.apply_defaults()
    if not isinstance(spec, str):
        try:
            # By position where possible: the callable's parameters may have other names.
            return spec(*bound.args, **bound.kwargs)
        except Exception as error:
            raise ObjectIdError(
                f"Task {task_name!r}: its object_id callable raised {type(error).__name__}: "
                f"{said(error)}. It must take the task's own arguments and return an object id for "
                "each call.",
                task_name=task_name,
            ) from error
    # What is in the task's own `**kwargs`, too.
    told = {**bound.arguments, **bound.kwargs}
    if spec in told:
        return told[spec]
    raise ObjectIdError(
        f"Task {task_name!r} was called without {spec!r}, which its object_id names. Give the "
        "argument in the call, or give it a default, or let object_id name another one.",
        task_name=task_name,
    )


def object_key(task_name: str, object_id: object, spec: ObjectIdSpec | None = None) -> str:
    """Return a short text for one object of one task, fit for the name of a key.

    The same object has the same text wherever it is computed, also after its id went through JSON
    or a URL: `7` and `"7"` are one object, a UUID and its usual text too, and a tuple and the list
    that JSON makes of it. Apart from that, different ids never share a text: `(1, 23)` and
    `(12, 3)` are two objects, and so are `b"7"` and `"7"`.

    Args:
        task_name: two tasks with the same object id do not share an object.
        object_id: an int, a str, a UUID, bytes, or a tuple of these. Members of enums that are an
            int or a str count as their value.
        spec: the task's `object_id`, for the error.

    Returns:
        32 hexadecimal digits. The id cannot be read out of them.

    Raises:
        ObjectIdError: `object_id` is of another type.
    """
    try:
        encoded = _encoded(task_name) + _encoded(object_id)
    except TypeError as error:
        source = "the object id" if spec is None else "what its object_id callable returned"
        if isinstance(spec, str):
            source = f"its argument {spec!r}, which object_id names,"
        raise ObjectIdError(
            f"Task {task_name!r}: {source} is {_kind(object_id, error.args[0])}. Expected "
            f"{_EXPECTED}; let object_id be a callable that makes one of the task's arguments.",
            task_name=task_name,
        ) from None
    return hashlib.sha256(encoded).hexdigest()[:_KEY_LENGTH]


def _kind(value: object, item: object) -> str:
    """Name the types of *value* and of the *item* in it; their contents may be secret."""
    if value is None:
        return "None: there is no object"
    if item is value:
        return f"a {type(value).__name__}"
    return f"a {type(value).__name__} with a {type(item).__name__} in it"


def _encoded(value: object) -> bytes:
    """Return bytes from which the value could be read back, so that no two share them.

    Raises TypeError with a value of which no id can be made.
    """
    # A bool is an int in Python; as the id of an object it is a mistake.
    if isinstance(value, int) and not isinstance(value, bool):
        return _chunk(b"t", int.__repr__(value).encode())
    if isinstance(value, UUID):
        return _chunk(b"t", str(value).encode())
    if isinstance(value, str):
        # Not str(value): for a member of an enum that is its name.
        return _chunk(b"t", str.encode(value, "utf-8", "surrogatepass"))
    if isinstance(value, bytes):
        return _chunk(b"b", value)
    if isinstance(value, (tuple, list)):
        return _chunk(b"s", b"".join(_encoded(item) for item in value))
    raise TypeError(value)


def _chunk(tag: bytes, content: bytes) -> bytes:
    return b"%s%d:%s" % (tag, len(content), content)

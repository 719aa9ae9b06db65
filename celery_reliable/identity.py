"""Which object a task works on: from a call's arguments to the name of its lock.

Pure: nothing here talks to a server.
"""

from __future__ import annotations

import difflib
import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias
from uuid import UUID

from celery_reliable.exceptions import ConfigurationError, ObjectIdError, said

__all__ = ["ObjectIdSpec", "check_object_id_spec", "object_key", "resolve_object_id"]

#: How a task says what its object is: the name of one of its arguments, or a callable that takes
#: the task's own arguments and returns the object id.
ObjectIdSpec: TypeAlias = str | Callable[..., object]

# 128 bits: two objects that meet by chance are not a thing to plan for.
_KEY_LENGTH = 32

_EXPECTED = "an int, a str, a UUID, bytes, or a tuple of these"


def check_object_id_spec(spec: object, signature: inspect.Signature, task_name: str) -> None:
    """Check a task's `object_id` when the task is defined.

    A callable is only known to be one; what it returns is seen when the task is called.

    Args:
        spec: what the task says.
        signature: that of the task's own arguments, without `self`.
        task_name: for the error.

    Raises:
        ConfigurationError: `spec` is neither a name nor a callable, or the task has no such
            argument.
    """
    if callable(spec):
        return
    if not isinstance(spec, str):
        raise ConfigurationError(
            f"Task {task_name!r}: object_id is a {type(spec).__name__}. Expected the name of one "
            "of the task's arguments, or a callable that takes the task's arguments."
        )
    names = list(signature.parameters)
    takes_any = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
    if spec in names or (takes_any and spec):
        return
    near = difflib.get_close_matches(spec, names, n=1, cutoff=0.5)
    if near:
        way_out = f"Did you mean {near[0]!r}?"
    elif names:
        way_out = f"Its arguments are {', '.join(names)}."
    else:
        way_out = "It takes no arguments."
    raise ConfigurationError(
        f"Task {task_name!r}: object_id={spec!r} is not an argument of the task. {way_out}"
    )


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
        The value as it is, a default included. `object_key` says whether it will do.

    Raises:
        ObjectIdError: the call lacks the argument, or the callable raised.
    """
    if not isinstance(spec, str):
        return _called(spec, task_name, args, kwargs)
    try:
        # Other arguments may be missing: that is the task's own error, raised by its own call.
        bound = signature.bind_partial(*args, **kwargs)
    except TypeError as error:
        raise ObjectIdError(
            f"Task {task_name!r} was called with arguments that it does not take ({error}), so "
            f"its object_id {spec!r} cannot be told.",
            task_name=task_name,
        ) from error
    bound.apply_defaults()
    if spec in bound.arguments:
        return bound.arguments[spec]
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            extra = bound.arguments[parameter.name]
            if spec in extra:
                return extra[spec]
    raise ObjectIdError(
        f"Task {task_name!r} was called without {spec!r}, which its object_id names. Give the "
        "argument in the call, or give it a default, or let object_id name another one.",
        task_name=task_name,
    )


def object_key(task_name: str, object_id: object) -> str:
    """Return a short text for one object of one task, fit for the name of a key.

    The same object has the same text wherever it is computed, also after its id went through JSON
    or a URL: `7` and `"7"` are one object, a UUID and its usual text too, and a tuple and the list
    that JSON makes of it. Apart from that, different ids never share a text: `(1, 23)` and
    `(12, 3)` are two objects, and so are `b"7"` and `"7"`.

    Args:
        task_name: two tasks with the same object id do not share an object.
        object_id: an int, a str, a UUID, bytes, or a tuple of these. Members of enums that are an
            int or a str count as their value.

    Returns:
        32 hexadecimal digits. The id cannot be read out of them.

    Raises:
        ObjectIdError: `object_id` is of another type.
    """
    encoded = _encoded(task_name, task_name) + _encoded(object_id, task_name)
    return hashlib.sha256(encoded).hexdigest()[:_KEY_LENGTH]


def _called(
    spec: Callable[..., object], task_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> object:
    try:
        return spec(*args, **kwargs)
    except Exception as error:
        raise ObjectIdError(
            f"Task {task_name!r}: its object_id callable raised {type(error).__name__}: "
            f"{said(error)}. "
            "It must take the task's own arguments and return an object id for each call.",
            task_name=task_name,
        ) from error


def _encoded(value: object, task_name: str) -> bytes:
    """Return bytes from which the value could be read back, so that no two share them."""
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
        return _chunk(b"s", b"".join(_encoded(item, task_name) for item in value))
    what = "None: there is no object" if value is None else f"a {type(value).__name__}"
    raise ObjectIdError(
        f"Task {task_name!r}: the object id is {what}. Expected {_EXPECTED}; let object_id be a "
        "callable that makes one of the task's arguments.",
        task_name=task_name,
    )


def _chunk(tag: bytes, content: bytes) -> bytes:
    return b"%s%d:%s" % (tag, len(content), content)

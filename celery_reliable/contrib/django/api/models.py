"""The parameters of operations as models of pydantic, by which ninja checks requests."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, create_model

from celery_reliable.operations import Operation, Param, Parameter

__all__ = ["model_of", "values_of"]


def model_of(operation: Operation) -> type[BaseModel]:
    """Return what a query of an operation may ask, or the body of an act say.

    In a query the parts of a filter are parameters of their own.
    """
    given = operation.parameters
    if not operation.is_act:
        return _model(f"{operation.name}_query", given, is_strict=False)
    more = {}
    for of in {one.of for one in given if one.of}:
        within = _model(of.title(), [one for one in given if one.of == of], is_strict=True)
        more[of] = (within, Field(default_factory=lambda: None))
    name = f"{operation.name.title().replace('_', '')}Body"
    return _model(name, [one for one in given if not one.of], is_strict=True, **more)


def values_of(operation: Operation, given: BaseModel | None) -> dict[str, Any]:
    """Return what was given, as the operation takes it."""
    values = {} if given is None else given.model_dump(exclude_unset=True)
    for of in {one.of for one in operation.parameters}:
        values |= values.pop(of, {})
    return values


def _model(
    name: str, parameters: Iterable[Parameter], *, is_strict: bool, **more: Any
) -> type[BaseModel]:
    fields = {one.name: _declared(one, is_strict) for one in parameters} | more
    config = ConfigDict(extra="forbid", allow_inf_nan=False)
    return create_model(name, __config__=config, **fields)


def _declared(one: Parameter, is_strict: bool) -> tuple[Any, Any]:
    """Return a parameter's type and field, as pydantic takes them."""
    kind, more = one.type, _bounds(one.param)
    if one.param.choices:
        kind = Literal[one.param.choices]
    elif kind is datetime:
        kind = AwareDatetime
    elif get_origin(kind) is tuple:
        (item, _) = get_args(kind)
        param = next((each for each in get_args(item) if isinstance(each, Param)), Param())
        kind = list[Annotated[str, Field(**_bounds(param))]]
    elif kind in (bool, int, float):
        # JSON has types of its own; all of a query is text.
        more["strict"] = is_strict
    if one.default is None:
        # Left out is None, and nothing else is.
        more["default_factory"] = lambda: None
    elif not one.is_required:
        more["default"] = one.default
    return kind, Field(**more)


def _bounds(param: Param) -> dict[str, Any]:
    found = {
        "ge": param.ge,
        "gt": param.gt,
        "le": param.le,
        "min_length": param.min_length,
        "max_length": param.max_length or param.most,
        "description": param.help or None,
    }
    return {name: value for name, value in found.items() if value is not None}

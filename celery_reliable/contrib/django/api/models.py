"""The parameters of operations as models of pydantic, by which ninja checks requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
    if operation.is_act:
        return _model(f"{operation.name.title().replace('_', '')}Body", given, is_strict=True)
    flat = [part for one in given for part in (one.parts or (one,))]
    return _model(f"{operation.name}_query", flat, is_strict=False)


def values_of(operation: Operation, given: BaseModel | None) -> dict[str, Any]:
    """Return what was given, as the operation takes it."""
    values = {} if given is None else given.model_dump(exclude_unset=True)
    for one in operation.parameters:
        if one.parts:
            flat = {part.name for part in one.parts} & values.keys()
            within = {name: values.pop(name) for name in flat}
            values[one.name] = one.type(**within, **values.get(one.name, {}))
    return values


def _model(name: str, parameters: Iterable[Parameter], *, is_strict: bool) -> type[BaseModel]:
    fields: Mapping[str, Any] = {
        one.name: (_type(one, is_strict), _field(one, is_strict)) for one in parameters
    }
    return create_model(name, __config__=ConfigDict(extra="forbid"), **fields)


def _type(one: Parameter, is_strict: bool) -> Any:
    if one.parts:
        return _model(one.type.__name__, one.parts, is_strict=is_strict)
    if one.param.choices:
        return Literal[one.param.choices]
    if one.type is datetime:
        return AwareDatetime
    if get_origin(one.type) is tuple:
        (item, _) = get_args(one.type)
        param = next((each for each in get_args(item) if isinstance(each, Param)), Param())
        return list[Annotated[str, Field(**_bounds(param))]]
    return one.type


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


def _field(one: Parameter, is_strict: bool) -> Any:
    more = _bounds(one.param)
    if one.type is float:
        more["allow_inf_nan"] = False
    if is_strict and one.type in (bool, int, float):
        # JSON has types of its own; all of a query is text.
        more["strict"] = True
    if one.is_required:
        return Field(**more)
    if one.default is None or one.parts:
        # Left out is None, and nothing else is.
        return Field(default_factory=lambda: None, **more)
    return Field(default=one.default, **more)

"""The parameters of operations as models of pydantic, by which ninja checks requests."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, create_model
from pydantic_core import PydanticCustomError

from celery_reliable.operations import Operation, Param, Parameter

__all__ = ["model_of", "values_of"]

#: What a query may say of these, and in words.  A body has JSON's own.
_IN_A_QUERY = {
    bool: (re.compile("0|1|true|false", re.IGNORECASE), "true or false"),
    int: (re.compile(r"-?[0-9]+"), "a whole number"),
    float: (re.compile(r"-?[0-9]*\.?[0-9]+([eE][-+]?[0-9]+)?"), "a number"),
}
#: Else it may be a number, which pydantic would take for seconds.
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[Tt ].*"), "a time in ISO 8601"


def model_of(operation: Operation) -> type[BaseModel] | None:
    """Return what a query of an operation may ask, or the body of an act say; None: nothing.

    In a query the parts of a filter are parameters of their own.
    """
    given = operation.parameters
    if operation.is_act:
        return _model(f"{operation.name.title().replace('_', '')}Body", given, is_query=False)
    flat = [part for one in given for part in (one.parts or (one,))]
    return _model(f"{operation.name}_query", flat, is_query=True) if flat else None


def values_of(operation: Operation, given: BaseModel | None) -> dict[str, Any]:
    """Return what was given, as the operation takes it."""
    values = {}
    for one in operation.parameters:
        if one.parts:
            within = getattr(given, one.name) if operation.is_act else given
            values[one.name] = one.type(**_set(within, one.parts))
        else:
            values |= _set(given, (one,))
    return values


def _set(model: BaseModel | None, among: Iterable[Parameter]) -> dict[str, Any]:
    names = set() if model is None else model.model_fields_set
    return {one.name: getattr(model, one.name) for one in among if one.name in names}


def _model(name: str, parameters: Iterable[Parameter], *, is_query: bool) -> type[BaseModel]:
    fields: Mapping[str, Any] = {
        one.name: (_type(one, is_query), _field(one)) for one in parameters
    }
    return create_model(name, __config__=ConfigDict(extra="forbid"), **fields)


def _type(one: Parameter, is_query: bool) -> Any:
    if one.parts:
        return _model(one.type.__name__, one.parts, is_query=is_query)
    if one.param.choices:
        return Literal[one.param.choices]
    if one.type is datetime:
        return Annotated[AwareDatetime, BeforeValidator(_only(*_MOMENT))]
    if one.type in _IN_A_QUERY:
        if is_query:
            return Annotated[one.type, BeforeValidator(_only(*_IN_A_QUERY[one.type]))]
        return Annotated[one.type, Field(strict=True)]
    if get_origin(one.type) is tuple:
        (item, _) = get_args(one.type)
        param = next((each for each in get_args(item) if isinstance(each, Param)), Param())
        return list[Annotated[str, Field(**_bounds(param))]]
    return one.type


def _only(pattern: re.Pattern[str], words: str) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if not (isinstance(value, str) and pattern.fullmatch(value)):
            raise PydanticCustomError("text", "Input should be {words}", {"words": words})
        return value

    return check


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


def _field(one: Parameter) -> Any:
    more = _bounds(one.param)
    if one.type is float:
        more["allow_inf_nan"] = False
    if one.is_required:
        return Field(**more)
    if one.default is None or one.parts:
        # Left out is None, and nothing else is.
        return Field(default_factory=lambda: None, **more)
    return Field(default=one.default, **more)

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
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT.*"), "a time in ISO 8601"


def model_of(operation: Operation) -> type[BaseModel] | None:
    """Return what a query of an operation may ask, or the body of an act say; None: nothing.

    In a query the parts of a filter are parameters of their own.
    """
    parameters = _flat(operation) if not operation.is_act else operation.parameters
    if not parameters:
        return None
    name = operation.name.title().replace("_", "") + ("Body" if operation.is_act else "Query")
    return _model(name, parameters, is_query=not operation.is_act)


def values_of(operation: Operation, given: BaseModel | None) -> dict[str, Any]:
    """Return what was given, as the operation takes it."""
    values = {} if given is None else {one: getattr(given, one) for one in given.model_fields_set}
    for one in operation.parameters:
        if one.parts:
            within = values.pop(one.name, None) if operation.is_act else given
            parts = (
                {}
                if within is None
                else {
                    part.name: getattr(within, part.name)
                    for part in one.parts
                    if part.name in within.model_fields_set
                }
            )
            for name in () if operation.is_act else parts:
                del values[name]
            values[one.name] = one.type(**parts)
    return values


def _flat(operation: Operation) -> list[Parameter]:
    return [part for one in operation.parameters for part in (one.parts or (one,))]


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

"""The JSON API: what an operator sees and does, for programs, below ``v1/``.

``celery_reliable.contrib.django.urls`` has its addresses, one for each operation that has a path.
The parameters of operations are models of pydantic here, by which ninja checks requests.  Who asks
is said by classes of django-ninja's (`ninja.security`), and what he may do by a function, if a
project has such::

    CELERY_RELIABLE_API = {
        "AUTHENTICATION": ["shop.desk.TokenAuthentication"],
        "PERMISSION": "shop.desk.may",
    }
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from http import HTTPStatus
from importlib.metadata import version
from typing import Annotated, Any, Literal, get_args, get_origin

from django.conf import settings
from django.contrib.auth import decorators
from django.http import HttpRequest, HttpResponse
from django.urls import include, path, reverse
from django.utils.module_loading import import_string
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.debug import sensitive_variables
from ninja import Body, NinjaAPI, Query
from ninja.errors import HttpError, ValidationError
from ninja.security import SessionAuth
from ninja.security.base import AuthBase
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, create_model

from celery_reliable.contrib.django.project import opened_desk
from celery_reliable.exceptions import (
    ConfigurationError,
    LedgerRefused,
    LedgerUnavailable,
    ReliableError,
)
from celery_reliable.log import as_shown
from celery_reliable.operations import (
    ACTS,
    QUERIES,
    BadParameter,
    BrokerUnavailable,
    CannotReplay,
    Desk,
    Operation,
    Param,
    Parameter,
    Right,
    UnknownGroup,
    UnknownOrder,
    UnknownRun,
    as_json,
)

__all__ = [
    "OPERATIONS",
    "Problem",
    "ProblemDetails",
    "SessionAuthentication",
    "api",
    "api_config",
    "document_of",
    "response",
    "urlpatterns",
]

#: An escaped backslash, or a pair of surrogates, or half of one, in JSON of ASCII only.
_HALVES = re.compile(r"\\\\|\\ud[89ab]..\\ud[c-f]..|(\\ud[89a-f]..)")

OPERATIONS = tuple(one for one in (*QUERIES, *ACTS) if one.path)

#: Statuses of HTTP.  The code of the problem is the name of the exception.
_STATUSES: dict[type, int] = {
    UnknownOrder: 404,
    UnknownGroup: 404,
    UnknownRun: 404,
    CannotReplay: 409,
    BrokerUnavailable: 503,
    LedgerUnavailable: 503,
    LedgerRefused: 503,
}
#: A request lasts so long at the most, whatever is left to do then.
_LONGEST_SECONDS = 10.0
_HUMP = re.compile(r"(?<!^)(?=[A-Z])")

_PROBLEM = {
    "content": {
        "application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}
    }
}

_DEFAULTS: dict[str, Any] = {
    "AUTHENTICATION": ["celery_reliable.contrib.django.api.SessionAuthentication"],
    "PERMISSION": "celery_reliable.contrib.django.project.may",
}


api = NinjaAPI(
    title="celery_reliable",
    version=version("celery-reliable"),
    description="What an operator sees and does.",
    docs_url=None,
    openapi_url=None,
    urls_namespace="celery_reliable_api",
)


class SessionAuthentication(SessionAuth):
    """The user who is logged in to Django; the default.  A request that changes anything needs
    Django's CSRF token, too, as a browser sends its cookie also when another site asks it to.
    """

    def __call__(self, request: HttpRequest) -> Any:
        """Return the session's user, or None.  Raises HttpError."""
        # Otherwise a request with a wrong bearer token would be told that a CSRF token is missing.
        return super().__call__(request) if self.authenticate(request, None) else None


def api_config() -> tuple[tuple[AuthBase, ...], Callable[[Any, Right], bool]]:
    """Return who is asked, in turn, who sends a request, and what is asked what he may do, as the
    settings say.  Raises ConfigurationError.
    """
    given = getattr(settings, "CELERY_RELIABLE_API", {})
    try:
        config = {**_DEFAULTS, **given}
        ways = tuple(import_string(path)() for path in config["AUTHENTICATION"])
        permission = import_string(config["PERMISSION"])
        is_known = config.keys() == _DEFAULTS.keys() and callable(permission)
        if not (is_known and ways and all(isinstance(way, AuthBase) for way in ways)):
            raise TypeError(f"it is {given!r:.500}")
    except (ImportError, TypeError) as exc:
        raise ConfigurationError(
            f"CELERY_RELIABLE_API cannot be used: {exc}. AUTHENTICATION is a list of dotted paths "
            "of classes as in ninja.security, PERMISSION that of a function of a user and a right."
        ) from exc
    return ways, permission


class ProblemDetails(BaseModel):
    """What is wrong.  The code stays; the detail is for people.  The parameter is the one that is
    wrong, where it is one.
    """

    type: str
    title: str
    status: int
    detail: str
    code: str
    parameter: str = ""


class Problem(ReliableError):
    """A request that cannot be answered.

    Args:
        status: of HTTP.
        code: a name for programs, which stays.
        detail: for people.
        parameter: that is wrong; empty where it is none.
        headers: of the answer.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        parameter: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        told = ProblemDetails(
            type="about:blank",
            title=HTTPStatus(status).phrase,
            status=status,
            detail=detail,
            code=code,
            parameter=parameter,
        ).model_dump(exclude_defaults=True)
        #: The answer, as RFC 9457 has it.
        self.response = response(told, status, "application/problem+json", headers)


def response(
    value: Any,
    status: int = 200,
    content_type: str = "application/json",
    headers: Mapping[str, str] | None = None,
) -> HttpResponse:
    """Return *value* as JSON that any client can read.  What JSON has not (NaN, infinity) is null;
    half a character is shown as the text of its escape.
    """
    known = json.loads(json.dumps(value), parse_constant=lambda _: None)
    text = _HALVES.sub(lambda found: ("\\" if found[1] else "") + found[0], json.dumps(known))
    told = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", **(headers or {})}
    return HttpResponse(text.encode(), status=status, content_type=content_type, headers=told)


def _model_of(operation: Operation) -> type[BaseModel]:
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


def _values_of(operation: Operation, given: BaseModel | None) -> dict[str, Any]:
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
    kind, more = one.type, _bounds(one.param, one.type)
    if one.param.choices:
        kind = Literal[one.param.choices]
    elif kind is datetime:
        kind = AwareDatetime
    elif get_origin(kind) is tuple:
        (item, _) = get_args(kind)
        param = next((each for each in get_args(item) if isinstance(each, Param)), Param())
        kind = list[Annotated[str, Field(**_bounds(param, str))]]
    elif kind in (bool, int, float):
        # JSON has types of its own; all of a query is text.
        more["strict"] = is_strict
    if one.default is None:
        # Left out is None, and nothing else is.
        more["default_factory"] = lambda: None
    elif not one.is_required:
        more["default"] = one.default
    return kind, Field(**more)


def _bounds(param: Param, kind: Any) -> dict[str, Any]:
    is_text = kind is str and not param.choices
    found = {
        "ge": param.ge,
        "le": param.le,
        "min_length": param.min_length,
        "max_length": param.max_length if is_text else param.most,
        "description": param.help or None,
    }
    return {name: value for name, value in found.items() if value is not None}


@api.exception_handler(ReliableError)
def _known(request: HttpRequest, exc: ReliableError) -> HttpResponse:
    text = as_shown(str(exc))
    if isinstance(exc, Problem):
        return exc.response
    if isinstance(exc, BadParameter):
        return Problem(400, "bad_parameter", text, exc.parameter).response
    for kind, status in _STATUSES.items():
        if isinstance(exc, kind):
            return Problem(status, _HUMP.sub("_", kind.__name__).lower(), text).response
    raise exc


@api.exception_handler(HttpError)
def _unreadable(request: HttpRequest, exc: HttpError) -> HttpResponse:
    if exc.status_code == 403:
        said = (
            "Who is known by a session has to send Django's CSRF token, too: the cookie, and the "
            "same in X-CSRFToken."
        )
        return Problem(403, "csrf_failed", said).response
    return Problem(400, "bad_body", "The body is no JSON in UTF-8, or too deep.").response


@api.exception_handler(ValidationError)
def _invalid(request: HttpRequest, exc: ValidationError) -> HttpResponse:
    first = exc.errors[0]
    # ("body", "given", "ids", 1), or of a query ("query", "limit")
    steps = [one for one in first["loc"][1:] if one != "given"]
    name = "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in steps).lstrip(".")
    return Problem(400, "bad_parameter", f"{first['msg']}."[:500], name[:500]).response


def _require(may: Callable[[Right], bool], rights: Iterable[Right]) -> None:
    """Raise Problem unless who asks has these rights."""
    for right in rights:
        if not may(right):
            raise Problem(403, "not_permitted", f"This needs the right {right.value!r}.")


def _user_of(request: HttpRequest, *, needs: tuple[Right, ...], names: tuple[str, ...]) -> Any:
    """Return who sends a request that may go on, and what says what he may do.

    Raises Problem, and ConfigurationError.
    """
    # A page of another site can send forms and plain text, and JSON only by leave.
    if request.method == "POST" and request.content_type != "application/json":
        raise Problem(415, "not_json", "The body has to be JSON (Content-Type: application/json).")
    ways, permission = api_config()
    user = next(filter(None, (way(request) for way in ways)), None)
    if user is None:
        said = "It is not known who asks: log in, or send what the project's API asks for."
        schemes = filter(None, (one.openapi_security_schema.get("scheme") for one in ways))
        challenge = ", ".join(schemes).title()
        told = {"WWW-Authenticate": challenge} if challenge else {}
        raise Problem(401, "not_authenticated", said, headers=told)
    may = partial(permission, user)
    _require(may, needs)
    for name in request.GET.keys() - set(names):
        said = f"{name[:50]!r} is no parameter of this address."
        raise Problem(400, "bad_parameter", said, name[:50])
    return user, may


def _add(operation: Operation) -> None:
    model = _model_of(operation)
    summary, _, rest = " ".join(operation.about.split()).partition(". ")
    needed = [one.value for one in operation.needs]
    more = "".join(
        f" With {one.name}: {one.param.needs.value}."
        for one in operation.parameters
        if one.param.needs is not None
    )
    statuses = {400, 401, 403, 503, *operation.problems, *((415,) if operation.is_act else ())}
    names = () if operation.is_act else tuple(model.model_fields)
    api.default_router.add_api_operation(
        f"/{operation.path}",
        ["POST" if operation.is_act else "GET"],
        _view_of(operation, model),
        auth=partial(_user_of, needs=operation.needs, names=names),
        response={200: operation.result},
        operation_id=operation.name,
        summary=summary.rstrip("."),
        description=f"{rest}\n\nNeeds: {', '.join(needed)}.{more}".strip(),
        url_name=operation.name,
        openapi_extra={
            "x-needs": needed,
            "responses": {
                one: _PROBLEM | {"description": HTTPStatus(one).phrase} for one in sorted(statuses)
            },
        },
    )


def _view_of(operation: Operation, model: Any) -> Callable[..., HttpResponse]:
    def view(request: HttpRequest, given: Any) -> HttpResponse:
        user, may = request.auth
        values = {"seconds": _LONGEST_SECONDS, **_values_of(operation, given)}
        needed = [one.param.needs for one in operation.parameters if values.get(one.name)]
        _require(may, filter(None, needed))
        named = getattr(user, "get_username", user.__str__)
        with opened_desk(sees_arguments=may(Right.SEE_ARGUMENTS)) as desk:
            found = operation.run(desk, values, by=f"api:{named()}"[:200])
        if getattr(found, "state", "") == "absent":
            raise Problem(404, "unknown_task", found.why.sentence)
        return response(as_json(found))

    view.__name__ = operation.name
    # Who needs to say nothing needs no body.
    is_needed = any(one.is_required for one in operation.parameters)
    kind: Any = Body if operation.is_act else Query
    view.__annotations__["given"] = Annotated[model, kind(... if is_needed else None)]
    return view


def document_of(server: str, ways: Sequence[Any]) -> dict[str, Any]:
    """Return the OpenAPI document of the API below *server*, asked in these *ways*."""
    found: dict[str, Any] = json.loads(json.dumps(api.get_openapi_schema(path_prefix="")))
    found["components"]["schemas"]["ProblemDetails"] = ProblemDetails.model_json_schema()
    schemes = {type(one).__name__: one.openapi_security_schema for one in ways}
    found["servers"] = [{"url": server}]
    found["components"]["securitySchemes"] = schemes
    found["security"] = [{name: []} for name in schemes]
    return found


def _openapi(desk: Desk) -> dict[str, Any]:
    """Show this document."""
    server = reverse("celery_reliable:openapi").removesuffix("/openapi.json")
    return document_of(server, api_config()[0])


for _one in (*OPERATIONS, Operation("openapi", _openapi, (Right.VIEW,), "openapi.json")):
    _add(_one)
# Where everybody has to log in, who has not is told so here, rather than sent to a page.
# (Django has that since 5.1.)
_anybody = getattr(decorators, "login_not_required", csrf_exempt)
urlpatterns = [
    path(
        "v1/",
        include(
            [
                path(
                    str(one.pattern),
                    csrf_exempt(_anybody(sensitive_variables()(one.callback))),
                    name=one.name,
                )
                for one in api.urls[0]
                # Not ninja's page of the root.
                if one.name != "api-root"
            ]
        ),
    )
]

"""The addresses of the API: one for each operation that has a path."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from http import HTTPStatus
from importlib.metadata import version
from typing import Annotated, Any

from django.contrib.auth import decorators
from django.http import HttpRequest, HttpResponse
from django.urls import include, path, reverse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.debug import sensitive_variables
from ninja import Body, NinjaAPI, Query
from ninja.errors import HttpError, ValidationError

from celery_reliable.contrib.django.api.access import api_config
from celery_reliable.contrib.django.api.models import model_of, values_of
from celery_reliable.contrib.django.api.requests import (
    Problem,
    ProblemDetails,
    response,
)
from celery_reliable.contrib.django.opening import opened_desk
from celery_reliable.exceptions import (
    LedgerRefused,
    LedgerUnavailable,
    NotPublished,
    PublishUnknown,
    ReliableError,
    UnknownDeadLetter,
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
    Right,
    UnknownGroup,
    UnknownOrder,
    UnknownRun,
    as_json,
)

__all__ = ["OPERATIONS", "api", "document_of", "urlpatterns"]

OPERATIONS = tuple(one for one in (*QUERIES, *ACTS) if one.path)

#: Statuses of HTTP.  The code of the problem is the name of the exception.
_STATUSES: dict[type, int] = {
    UnknownDeadLetter: 404,
    UnknownOrder: 404,
    UnknownGroup: 404,
    UnknownRun: 404,
    CannotReplay: 409,
    BrokerUnavailable: 503,
    LedgerUnavailable: 503,
    LedgerRefused: 503,
    NotPublished: 503,
    PublishUnknown: 503,
}
#: A request lasts so long at the most, whatever is left to do then.
_LONGEST_SECONDS = 10.0
_HUMP = re.compile(r"(?<!^)(?=[A-Z])")

_PROBLEM = {
    "content": {
        "application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}
    }
}


api = NinjaAPI(
    title="celery_reliable",
    version=version("celery-reliable"),
    description="What an operator sees and does.",
    docs_url=None,
    openapi_url=None,
    urls_namespace="celery_reliable_api",
)


@api.exception_handler(ReliableError)
def _known(request: HttpRequest, exc: ReliableError) -> HttpResponse:
    text = as_shown(str(exc))
    if isinstance(exc, Problem):
        return exc.response
    if isinstance(exc, BadParameter):
        return Problem(400, "bad_parameter", text, exc.parameter).response
    for kind in type(exc).__mro__:
        if kind in _STATUSES:
            return Problem(_STATUSES[kind], _HUMP.sub("_", kind.__name__).lower(), text).response
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
    model = model_of(operation)
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
        values = {"seconds": _LONGEST_SECONDS, **values_of(operation, given)}
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


def _door(view: Callable[..., HttpResponse]) -> Any:
    """Return the view of an address as Django calls it."""

    @sensitive_variables()
    def answer(request: HttpRequest, **given: Any) -> HttpResponse:
        found = view(request, **given)
        if found.status_code == 405:
            said = f"This address is asked by {found['Allow']}."
            told = {"Allow": found["Allow"]}
            return Problem(405, "method_not_allowed", said, headers=told).response
        return found

    # Where everybody has to log in, who has not is told so here, rather than sent to a page.
    # (Django has that since 5.1.)
    anybody = getattr(decorators, "login_not_required", csrf_exempt)
    return csrf_exempt(anybody(answer))


for _one in (*OPERATIONS, Operation("openapi", _openapi, (Right.VIEW,), "openapi.json")):
    _add(_one)
urlpatterns = [
    path(
        "v1/",
        include(
            [
                path(str(one.pattern), _door(one.callback), name=one.name)
                for one in api.urls[0]
                # Not ninja's page of the root.
                if one.name != "api-root"
            ]
        ),
    )
]

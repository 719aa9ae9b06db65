"""The addresses of the API: one for each operation that has a path."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from http import HTTPStatus
from importlib.metadata import version
from typing import Annotated, Any

from django.contrib.auth import decorators
from django.http import HttpRequest, HttpResponse
from django.urls import include, path, re_path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.debug import sensitive_variables
from ninja import Body, NinjaAPI, Query
from ninja.errors import HttpError, ValidationError
from ninja.parser import Parser

from celery_reliable.contrib.django.api import Authentication, api_config
from celery_reliable.contrib.django.api.models import model_of, values_of
from celery_reliable.contrib.django.api.requests import (
    Asker,
    Problem,
    ProblemDetails,
    asker_of,
    checked,
    response,
)
from celery_reliable.contrib.django.project import desk_app
from celery_reliable.exceptions import (
    LedgerRefused,
    LedgerUnavailable,
    NotPublished,
    ObjectIdError,
    PublishUnknown,
    UnknownDeadLetter,
)
from celery_reliable.log import as_shown
from celery_reliable.operations import (
    ACTS,
    QUERIES,
    BadCursor,
    BadFilter,
    BadObject,
    BadOrder,
    CannotMove,
    CannotReplay,
    Desk,
    NothingEdited,
    Operation,
    Right,
    Unclear,
    UnknownGroup,
    UnknownOrder,
    UnknownRun,
    as_json,
    broker_errors,
)

__all__ = ["OPERATIONS", "api", "document_of", "urlpatterns"]

OPERATIONS = tuple(one for one in (*QUERIES, *ACTS) if one.path)
#: Short, as a thread of the web server waits for the ledger.
_PATIENCE_SECONDS = 2.0

_PROBLEMS: tuple[tuple[type[Exception], int, str, str], ...] = (
    (BadCursor, 400, "bad_parameter", "cursor"),
    (BadFilter, 400, "bad_parameter", ""),
    (BadObject, 400, "bad_parameter", ""),
    (ObjectIdError, 400, "bad_parameter", "id"),
    (CannotMove, 400, "bad_parameter", "workers"),
    (NothingEdited, 400, "bad_parameter", "args"),
    (Unclear, 400, "unclear_choice", ""),
    (BadOrder, 400, "bad_order", ""),
    (UnknownDeadLetter, 404, "unknown_dead_letter", ""),
    (UnknownOrder, 404, "unknown_order", ""),
    (UnknownGroup, 404, "unknown_group", ""),
    (UnknownRun, 404, "unknown_run", ""),
    (CannotReplay, 409, "cannot_replay", ""),
    (LedgerUnavailable, 503, "ledger_unavailable", ""),
    (LedgerRefused, 503, "ledger_refused", ""),
    (NotPublished, 503, "not_published", ""),
    (PublishUnknown, 503, "publish_unknown", ""),
)


_PROBLEM = {
    "content": {
        "application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}
    }
}


class _Json(Parser):
    """JSON as its standard has it: without NaN, and without half a character."""

    def parse_body(self, request: HttpRequest) -> Any:
        """Return what the body says; whatever is raised is a body that is no JSON."""

        def refuse(name: str) -> None:
            raise ValueError(name)

        found = json.loads(request.body.decode("utf-8"), parse_constant=refuse)
        json.dumps(found, ensure_ascii=False).encode("utf-8")
        return found


api = NinjaAPI(
    title="celery_reliable",
    version=version("celery-reliable"),
    description="What an operator sees and does.",
    docs_url=None,
    openapi_url=None,
    parser=_Json(),
    urls_namespace="celery_reliable_api",
)


def _known(request: HttpRequest, exc: Exception, row: tuple[Any, int, str, str]) -> HttpResponse:
    _, status, code, parameter = row
    parameter = getattr(exc, "parameter", parameter)
    return Problem(status, code, as_shown(str(exc)), parameter).response


for _row in _PROBLEMS:
    api.add_exception_handler(_row[0], partial(_known, row=_row))


@api.exception_handler(Problem)
def _problem(request: HttpRequest, exc: Problem) -> HttpResponse:
    return exc.response


@api.exception_handler(HttpError)
def _unreadable(request: HttpRequest, exc: HttpError) -> HttpResponse:
    said = "The body is no JSON in UTF-8, or nested too deep."
    return Problem(400, "bad_body", said).response


@api.exception_handler(ValidationError)
def _invalid(request: HttpRequest, exc: ValidationError) -> HttpResponse:
    first = exc.errors[0]
    # ("body", "given", "ids", 1), or of a query ("query", "limit")
    steps = [one for one in first["loc"][1:] if one != "given"]
    name = "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in steps).lstrip(".")
    said = f"{first['msg']}."
    return Problem(400, "bad_parameter", said[:500], name[:500]).response


@api.exception_handler(Exception)
def _unknown(request: HttpRequest, exc: Exception) -> HttpResponse:
    """Tell of a broker that is away.  Anything else is the project's to log."""
    if isinstance(getattr(request, "auth", None), Asker) and isinstance(
        exc, broker_errors(desk_app())
    ):
        said = f"The broker could not be reached: {as_shown(exc)}"
        return Problem(503, "broker_unavailable", said).response
    raise exc


def _add(
    address: str,
    view: Callable[..., HttpResponse],
    result: Any,
    about: str,
    *,
    needs: tuple[Right, ...] = (Right.VIEW,),
    names: Iterable[str] = (),
    is_act: bool = False,
    problems: Iterable[int] = (),
    more: str = "",
) -> None:
    summary, _, rest = " ".join(about.split()).partition(". ")
    allowed, needed = frozenset(names), [one.value for one in needs]
    statuses = sorted({400, 401, 403, 503, *problems, *((413, 415) if is_act else ())})
    api.default_router.add_api_operation(
        f"/{address}",
        ["POST"] if is_act else ["GET", "HEAD"],
        view,
        auth=lambda request: checked(request, needs, allowed),
        response={200: result},
        operation_id=view.__name__,
        summary=summary.rstrip("."),
        description=f"{rest}\n\nNeeds: {', '.join(needed)}.{more}".strip(),
        url_name=view.__name__,
        openapi_extra={
            "x-needs": needed,
            "responses": {
                one: _PROBLEM | {"description": HTTPStatus(one).phrase} for one in statuses
            },
        },
    )


def _view_of(operation: Operation, model: Any) -> Callable[..., HttpResponse]:
    def view(request: HttpRequest, given: Any) -> HttpResponse:
        asker: Asker = request.auth
        values = values_of(operation, given)
        for one in operation.parameters:
            if one.param.needs is not None and values.get(one.name):
                asker.require(one.param.needs)
        sees = asker.permission(asker.user, Right.SEE_ARGUMENTS)
        with Desk(desk_app(), patience_seconds=_PATIENCE_SECONDS, sees_arguments=sees) as desk:
            found = operation.run(desk, values, by=f"api:{asker.name}")
        if getattr(found, "state", "") == "absent":
            raise Problem(404, "unknown_task", found.why.sentence)
        return response(as_json(found))

    def bare(request: HttpRequest) -> HttpResponse:
        return view(request, None)

    found = bare if model is None else view
    found.__name__ = operation.name
    if model is not None:
        kind: Any = Body if operation.is_act else Query
        # An act that needs nothing needs no body.
        is_needed = not operation.is_act or any(one.is_required for one in operation.parameters)
        view.__annotations__["given"] = Annotated[model, kind(... if is_needed else None)]
    return found


def document_of(server: str, ways: Sequence[Authentication]) -> dict[str, Any]:
    """Return the OpenAPI document of the API below *server*, asked in these *ways*."""
    found: dict[str, Any] = json.loads(json.dumps(api.get_openapi_schema(path_prefix="")))
    for methods in found["paths"].values():
        methods.pop("head", None)
    # What is asked in a query is told with its operation.
    schemas = found["components"]["schemas"]
    found["components"]["schemas"] = {
        name: one for name, one in schemas.items() if not name.endswith("_query")
    } | {"ProblemDetails": ProblemDetails.model_json_schema()}
    schemes = {type(one).__name__: one.scheme() for one in ways}
    found["servers"] = [{"url": server}]
    found["components"]["securitySchemes"] = schemes
    found["security"] = [{name: []} for name in schemes]
    return found


def openapi(request: HttpRequest) -> HttpResponse:
    ways = [kind() for kind in api_config().authentication]
    return response(document_of(request.path.removesuffix("/openapi.json"), ways))


def _refused(request: HttpRequest, allowed: str = "") -> HttpResponse:
    """Answer who asks what there is not: first of all who he is, as everywhere."""
    problem = Problem(404, "unknown_address", "There is nothing at this address of the API.")
    if allowed:
        said, headers = f"This address is asked by {allowed}.", {"Allow": allowed}
        problem = Problem(405, "method_not_allowed", said, headers=headers)
    try:
        asker_of(request)
    except Problem as unknown:
        problem = unknown
    return problem.response


def _door(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Return the view of an address as Django calls it."""

    @sensitive_variables()
    def answer(request: HttpRequest, **given: Any) -> HttpResponse:
        found = view(request, **given)
        if found.status_code == 405:
            return _refused(request, found["Allow"].replace(", HEAD", ""))
        return found

    # Where everybody has to log in, who has not is told so here, rather than sent to a page.
    # (Django has that since 5.1.)
    anybody = getattr(decorators, "login_not_required", csrf_exempt)
    door: Callable[..., HttpResponse] = csrf_exempt(anybody(answer))
    return door


def _routes() -> list[Any]:
    for one in OPERATIONS:
        model = model_of(one)
        rights = [(each.name, each.param.needs) for each in one.parameters]
        more = [f" With {name}: {right.value}." for name, right in rights if right is not None]
        _add(
            one.path,
            _view_of(one, model),
            one.result,
            one.about,
            more="".join(more),
            needs=one.needs,
            names=() if one.is_act or model is None else model.model_fields,
            is_act=one.is_act,
            problems=one.problems,
        )
    _add("openapi.json", openapi, dict[str, Any], "Show this document.")
    found, _, _ = api.urls
    # Not ninja's page of the root.
    routes = [
        path(str(one.pattern), _door(one.callback), name=one.name)
        for one in found
        if one.name != "api-root"
    ]
    return [path("v1/", include(routes)), re_path("^v1/", _door(_refused))]


urlpatterns = _routes()

"""A request on its way to an operation: who sends it, whether he may, and what is answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from django.contrib.auth import decorators
from django.http import HttpRequest, HttpResponse, RawPostDataException, UnreadablePostError
from django.views.decorators.csrf import csrf_exempt, csrf_protect
from django.views.decorators.debug import sensitive_variables

from celery_reliable.contrib.django.api.authentication import Authentication
from celery_reliable.contrib.django.api.configuration import ApiConfig, api_config
from celery_reliable.contrib.django.api.declaring import Asked, Operation
from celery_reliable.contrib.django.api.encoding import as_json
from celery_reliable.contrib.django.api.parameters import read_body, read_query
from celery_reliable.contrib.django.api.problems import Problem, problems_told
from celery_reliable.contrib.django.project import desk_app
from celery_reliable.operations import Desk, Right

__all__ = ["view_of"]

#: Short, as a thread of the web server waits for the ledger.
_PATIENCE_SECONDS = 2.0
_MOST_BYTES = 1_000_000
_SAFE = ("GET", "HEAD")


def view_of(operations: Sequence[Operation]) -> Callable[[HttpRequest], HttpResponse]:
    """Return the view of one address, which answers as *operations* say; none: of no address."""
    by_method = {one.method: one for one in operations}

    @sensitive_variables()
    def answer(request: HttpRequest) -> HttpResponse:
        try:
            # Problems of the settings are the project's to log.
            return _response(_answered(request, by_method))
        except Problem as problem:
            return _response(problem.details, problem)

    # Where everybody has to log in, who has not is told so here, rather than sent to a page.
    # (Django has that since 5.1.)
    anybody = getattr(decorators, "login_not_required", csrf_exempt)
    view: Callable[[HttpRequest], HttpResponse] = csrf_exempt(anybody(answer))
    return view


def _answered(request: HttpRequest, by_method: Mapping[str, Operation]) -> Any:
    config = api_config()
    ways = [kind() for kind in config.authentication]
    user, how = _who(request, ways)
    operation = _operation_of(request, by_method)
    if request.method not in _SAFE:
        _check_content_type(request)
        if not how.is_csrf_exempt:
            _check_csrf(request)
    for right in operation.needs:
        _require(config, user, right)
    query = read_query(operation.query, request.META.get("QUERY_STRING", ""))
    for name, right in operation.needs_for.items():
        if getattr(query, name):
            _require(config, user, right)
    body = None if operation.body is None else read_body(operation.body, _body_of(request))
    app = desk_app()
    sees = config.permission(user, Right.SEE_ARGUMENTS)
    with (
        problems_told(app),
        Desk(app, patience_seconds=_PATIENCE_SECONDS, sees_arguments=sees) as desk,
    ):
        by = f"api:{_name_of(user)}"
        server = request.path.removesuffix(operation.path).rstrip("/")
        return operation.answer(Asked(desk, query, body, by, server, ways))


def _who(request: HttpRequest, ways: Sequence[Authentication]) -> tuple[Any, Authentication]:
    for way in ways:
        user = way.authenticate(request)
        if user is not None:
            return user, way
    challenges = ", ".join(way.challenge for way in ways if way.challenge)
    raise Problem(
        HTTPStatus.UNAUTHORIZED,
        "not_authenticated",
        "It is not known who asks: log in, or send what the project's API asks for.",
        headers={"WWW-Authenticate": challenges} if challenges else {},
    )


def _operation_of(request: HttpRequest, by_method: Mapping[str, Operation]) -> Operation:
    if not by_method:
        raise Problem(
            HTTPStatus.NOT_FOUND, "unknown_address", "There is nothing at this address of the API."
        )
    method = "GET" if request.method == "HEAD" else str(request.method)
    if method in by_method:
        return by_method[method]
    allowed = ", ".join(sorted(by_method))
    raise Problem(
        HTTPStatus.METHOD_NOT_ALLOWED,
        "method_not_allowed",
        f"This address is asked by {allowed}.",
        headers={"Allow": allowed},
    )


def _check_content_type(request: HttpRequest) -> None:
    # A page of another site can send forms and plain text, and JSON only by leave.
    if request.content_type != "application/json":
        raise Problem(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "not_json",
            "The body has to be JSON, with Content-Type: application/json.",
        )


def _check_csrf(request: HttpRequest) -> None:
    passed = HttpResponse()
    if csrf_protect(lambda request: passed)(request) is not passed:
        raise Problem(
            HTTPStatus.FORBIDDEN,
            "csrf_failed",
            "Who is known by a session has to send Django's CSRF token, too: the cookie, and the "
            "same in X-CSRFToken.",
        )


def _require(config: ApiConfig, user: Any, right: Right) -> None:
    if not config.permission(user, right):
        raise Problem(
            HTTPStatus.FORBIDDEN, "not_permitted", f"This needs the right {right.value!r}."
        )


def _body_of(request: HttpRequest) -> bytes:
    try:
        # Not `body`, which is bounded by the project's settings only.
        found: bytes = request.read(_MOST_BYTES + 1)
    except (UnreadablePostError, RawPostDataException) as exc:
        raise Problem(
            HTTPStatus.BAD_REQUEST, "bad_body", "The body could not be read to its end."
        ) from exc
    if len(found) > _MOST_BYTES:
        raise Problem(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            "body_too_large",
            f"A body has {_MOST_BYTES} bytes at the most.",
        )
    return found


def _name_of(user: Any) -> str:
    name = user.get_username() if hasattr(user, "get_username") else user
    return str(name)[:200]


def _response(value: Any, problem: Problem | None = None) -> HttpResponse:
    found = HttpResponse(
        as_json(value),
        status=200 if problem is None else int(problem.status),
        content_type="application/json" if problem is None else "application/problem+json",
    )
    found["Cache-Control"] = "no-store"
    found["X-Content-Type-Options"] = "nosniff"
    for name, said in (problem.headers if problem is not None else {}).items():
        found[name] = said
    return found

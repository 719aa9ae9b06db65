"""A request before it comes to an operation, what is wrong with it, and how it is answered."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse, RawPostDataException, UnreadablePostError
from django.views.decorators.csrf import csrf_protect
from pydantic import BaseModel

from celery_reliable.contrib.django.api import Authentication, Right, api_config

__all__ = ["Asker", "Problem", "ProblemDetails", "asker_of", "checked", "response"]

_MOST_BYTES = 1_000_000
#: In a query; more than any operation has.
_MOST_PARAMETERS = 100
#: An escaped backslash, or a pair of surrogates, or half of one, in JSON of ASCII only.
_HALVES = re.compile(r"\\\\|\\ud[89ab]..\\ud[c-f]..|(\\ud[89a-f]..)")


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


class Problem(Exception):
    """A request that cannot be answered.

    Args:
        status: of HTTP.
        code: a name for programs, which stays.
        detail: for people.
        parameter: that is wrong; empty where it is none.
        headers: of the answer.
    """

    def __init__(
        self, status: int, code: str, detail: str, parameter: str = "", **headers: str
    ) -> None:
        super().__init__(detail)
        #: The answer, as RFC 9457 has it.
        self.details = ProblemDetails(
            type="about:blank",
            title=HTTPStatus(status).phrase,
            status=status,
            detail=detail,
            code=code,
            parameter=parameter,
        )
        self.headers = headers

    @property
    def response(self) -> HttpResponse:
        """The answer."""
        answer = response(self.details.model_dump(exclude_defaults=True), self.details.status)
        answer["Content-Type"] = "application/problem+json"
        for name, value in self.headers.items():
            answer[name.replace("_", "-")] = value
        return answer


def response(value: Any, status: int = 200) -> HttpResponse:
    """Return *value* as JSON that any client can read.  What JSON has not (NaN, infinity) is null;
    half a character is shown as the text of its escape.
    """
    known = json.loads(json.dumps(value), parse_constant=lambda _: None)
    text = _HALVES.sub(lambda found: ("\\" if found[1] else "") + found[0], json.dumps(known))
    answer = HttpResponse(text.encode(), status=status, content_type="application/json")
    answer["Cache-Control"] = "no-store"
    answer["X-Content-Type-Options"] = "nosniff"
    return answer


@dataclass(frozen=True)
class Asker:
    """Who sends a request, how that is known, and who says what he may do."""

    user: Any
    way: Authentication
    permission: Callable[[Any, Any], bool]

    @property
    def name(self) -> str:
        """His name, for the audit."""
        named = hasattr(self.user, "get_username")
        return str(self.user.get_username() if named else self.user)[:200]

    def require(self, right: Right) -> None:
        """Raise Problem unless he has a right."""
        if not self.permission(self.user, right):
            raise Problem(403, "not_permitted", f"This needs the right {right.value!r}.")


def asker_of(request: HttpRequest) -> Asker:
    """Return who sends a request.  Raises Problem, and ConfigurationError."""
    config = api_config()
    ways = [kind() for kind in config.authentication]
    for way in ways:
        user = way.authenticate(request)
        if user is not None:
            return Asker(user, way, config.permission)
    challenges = ", ".join(way.challenge for way in ways if way.challenge)
    raise Problem(
        401,
        "not_authenticated",
        "It is not known who asks: log in, or send what the project's API asks for.",
        **({"WWW_Authenticate": challenges} if challenges else {}),
    )


def checked(request: HttpRequest, needs: tuple[Right, ...], names: frozenset[str]) -> Asker:
    """Return who sends a request that may go on.  Raises Problem.

    *names*: the parameters that its query may have; each may stand once.
    """
    asker = asker_of(request)
    if request.method == "POST":
        # A page of another site can send forms and plain text, and JSON only by leave.
        if request.content_type != "application/json":
            raise Problem(
                415,
                "not_json",
                "The body has to be JSON, with Content-Type: application/json.",
            )
        passed = HttpResponse()
        if not asker.way.is_csrf_exempt and csrf_protect(lambda _: passed)(request) is not passed:
            raise Problem(
                403,
                "csrf_failed",
                "Who is known by a session has to send Django's CSRF token, too: the cookie, and "
                "the same in X-CSRFToken.",
            )
    for right in needs:
        asker.require(right)
    _check_query(request, names)
    if request.method == "POST":
        _check_body(request)
    return asker


def _check_query(request: HttpRequest, names: frozenset[str]) -> None:
    query = request.META.get("QUERY_STRING", "")
    try:
        pairs = parse_qsl(
            query,
            keep_blank_values=True,
            strict_parsing=bool(query),
            errors="strict",
            max_num_fields=_MOST_PARAMETERS,
        )
    except ValueError as exc:
        raise Problem(400, "bad_query", "The query is none, or not in UTF-8.") from exc
    for name, count in Counter(name for name, _ in pairs).items():
        if name not in names or count > 1:
            said = "is given more than once" if name in names else "is no parameter of this address"
            raise Problem(400, "bad_parameter", f"{name[:50]!r} {said}.", name[:50])


def _check_body(request: HttpRequest) -> None:
    too_large = Problem(413, "body_too_large", f"A body has {_MOST_BYTES} bytes at the most.")
    if int(request.META.get("CONTENT_LENGTH") or 0) > _MOST_BYTES:
        raise too_large
    try:
        size = len(request.body)
    except RequestDataTooBig:
        raise too_large from None
    except (UnreadablePostError, RawPostDataException) as exc:
        raise Problem(400, "bad_body", "The body could not be read to its end.") from exc
    if size > _MOST_BYTES:
        raise too_large

"""What is wrong with a request before it comes to an operation, and how it is answered."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from django.http import HttpResponse
from pydantic import BaseModel

from celery_reliable.exceptions import ReliableError

__all__ = ["Problem", "ProblemDetails", "response"]

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

"""What is wrong with a request, as RFC 9457 has it: what is known, and no more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TypedDict

from celery import Celery

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
    BadCursor,
    BadFilter,
    BadOrder,
    CannotReplay,
    Unclear,
    UnknownGroup,
    UnknownOrder,
    broker_errors,
)

__all__ = ["Problem", "ProblemDetails", "problems_told"]


class _Details(TypedDict):
    type: str
    title: str
    status: int
    detail: str
    code: str


class ProblemDetails(_Details, total=False):
    """What is wrong.  The code stays; the detail is for people.  The parameter is the one that is
    wrong, where it is one.
    """

    parameter: str


@dataclass
class Problem(Exception):
    """A request that cannot be answered.

    Attributes:
        status: of HTTP.
        code: a name for programs, which stays.
        detail: for people.
        parameter: that is wrong; empty where it is none.
        headers: of the answer.
    """

    status: HTTPStatus
    code: str
    detail: str
    parameter: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def details(self) -> ProblemDetails:
        """The answer."""
        found: ProblemDetails = {
            "type": "about:blank",
            "title": self.status.phrase,
            "status": int(self.status),
            "detail": self.detail,
            "code": self.code,
        }
        if self.parameter:
            found["parameter"] = self.parameter
        return found


#: In this order.
_KNOWN: tuple[tuple[type[Exception], HTTPStatus, str, str], ...] = (
    (BadCursor, HTTPStatus.BAD_REQUEST, "bad_parameter", "cursor"),
    (BadFilter, HTTPStatus.BAD_REQUEST, "bad_parameter", ""),
    (ObjectIdError, HTTPStatus.BAD_REQUEST, "bad_parameter", "id"),
    (Unclear, HTTPStatus.BAD_REQUEST, "unclear_choice", ""),
    (UnknownDeadLetter, HTTPStatus.NOT_FOUND, "unknown_dead_letter", ""),
    (UnknownOrder, HTTPStatus.NOT_FOUND, "unknown_order", ""),
    (BadOrder, HTTPStatus.BAD_REQUEST, "bad_order", ""),
    (UnknownGroup, HTTPStatus.NOT_FOUND, "unknown_group", ""),
    (CannotReplay, HTTPStatus.CONFLICT, "cannot_replay", ""),
    (LedgerUnavailable, HTTPStatus.SERVICE_UNAVAILABLE, "ledger_unavailable", ""),
    (LedgerRefused, HTTPStatus.SERVICE_UNAVAILABLE, "ledger_refused", ""),
    (NotPublished, HTTPStatus.SERVICE_UNAVAILABLE, "not_published", ""),
    (PublishUnknown, HTTPStatus.SERVICE_UNAVAILABLE, "publish_unknown", ""),
)


@contextmanager
def problems_told(app: Celery) -> Iterator[None]:
    """Turn what is raised, and known, into a Problem.  Anything else is the project's to log."""
    try:
        yield
    except Problem:
        raise
    except Exception as exc:
        for kind, status, code, parameter in _KNOWN:
            if isinstance(exc, kind):
                raise Problem(status, code, as_shown(str(exc)), parameter) from exc
        if isinstance(exc, broker_errors(app)):
            raise Problem(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "broker_unavailable",
                f"The broker could not be reached: {as_shown(exc)}",
            ) from exc
        raise

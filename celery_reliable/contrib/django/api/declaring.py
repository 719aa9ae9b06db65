"""How an operation is declared: once, for who routes, checks, permits, answers and documents it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from celery_reliable.contrib.django.api.authentication import Authentication
from celery_reliable.contrib.django.api.parameters import Nothing
from celery_reliable.operations import Desk, Right

__all__ = ["Asked", "Operation"]


@dataclass(frozen=True)
class Asked:
    """What an operation is given.

    Attributes:
        desk: open for this request only.
        query: what the address asks; of the declared type.
        body: what the body says; of the declared type.
        by: who asks, for the audit.
        server: the path of the API.
        ways: how a request says who sends it.
    """

    desk: Desk
    query: Any
    body: Any
    by: str
    server: str
    ways: Sequence[Authentication]


@dataclass(frozen=True)
class Operation:
    """One operation.

    Attributes:
        method: of HTTP.
        path: below ``v1/``.
        answer: what is done, and answered as JSON; its first line of documentation is the summary.
        answers: the type of that.
        needs: rights, all of them.
        needs_for: parameters of the query that need another one, if they are given and true.
        query: what an address may ask.
        body: what a body may say; None: there is none.
        problems: the statuses of what can be wrong, beside those of all operations.
    """

    method: str
    path: str
    answer: Callable[[Asked], Any]
    answers: Any
    needs: tuple[Right, ...] = (Right.VIEW,)
    needs_for: Mapping[str, Right] = field(default_factory=dict)
    query: type[Struct] = Nothing
    body: type[Struct] | None = None
    problems: tuple[int, ...] = ()

    @property
    def id(self) -> str:
        """Its name."""
        return self.answer.__name__

    @property
    def about(self) -> str:
        """What it does."""
        return self.answer.__doc__ or ""

"""What a request may ask: the declarations by which it is checked, and which the document shows."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from celery_reliable.contrib.django.api.problems import Problem
from celery_reliable.model import Reason
from celery_reliable.operations import Chosen, Filter, IfRunning, Kind, OrderKind

__all__ = [
    "AuditQuery",
    "Choice",
    "DiscardBody",
    "FilterGiven",
    "GroupsQuery",
    "LetterQuery",
    "LettersQuery",
    "NoBody",
    "Nothing",
    "ObjectQuery",
    "ObjectsQuery",
    "OneBody",
    "OrderBody",
    "ReplayBody",
    "ReplayEditedBody",
    "ReplayOneBody",
    "ResumeBody",
    "RevokeBody",
    "StatusQuery",
    "TaskQuery",
    "TasksQuery",
    "WorkersQuery",
    "read_body",
    "read_query",
]

S = TypeVar("S", bound=Struct)

#: For how long one act goes on at the most: somebody waits for the answer.
MOST_SECONDS = 10.0
#: Revoked by one request.
MOST_REVOKED = 500
#: In a query; more than any operation has.
_MOST_PARAMETERS = 100

Text = Annotated[str, Meta(max_length=1000)]
Id = Annotated[str, Meta(min_length=1, max_length=1000)]
Pattern = Annotated[str, Meta(max_length=1000, description="A pattern as the shell has them.")]
Age = Annotated[float, Meta(ge=0, le=1e10, description="Seconds.")]
Cursor = Annotated[str, Meta(max_length=10_000, description="Of the answer before.")]
PageLimit = Annotated[int, Meta(ge=1, le=500, description="At most so many items.")]
Queue = Annotated[str, Meta(max_length=255, description="To this queue instead of their own.")]


class Nothing(Struct, forbid_unknown_fields=True):
    """No parameters."""


class FilterGiven(Struct, kw_only=True, forbid_unknown_fields=True):
    """All that is given has to fit."""

    task: Pattern | UnsetType = UNSET
    queue: Pattern | UnsetType = UNSET
    reason: Reason | UnsetType = UNSET
    exception: Annotated[str, Meta(max_length=1000, description="Its type; a pattern.")] | (
        UnsetType
    ) = UNSET
    cause: Annotated[str, Meta(max_length=1000, description="What contains it.")] | UnsetType = (
        UNSET
    )
    object_id: Text | UnsetType = UNSET
    worker: Pattern | UnsetType = UNSET
    older_than_seconds: Age | UnsetType = UNSET
    newer_than_seconds: Age | UnsetType = UNSET
    text: Annotated[str, Meta(max_length=1000, description="In name, exception or id.")] | (
        UnsetType
    ) = UNSET

    def filter(self) -> Filter:
        """Return what is meant."""
        given = {one.name: getattr(self, one.name) for one in fields(Filter)}
        if isinstance(given["reason"], Reason):
            given["reason"] = given["reason"].value
        return Filter(**{name: one for name, one in given.items() if one is not UNSET})


class StatusQuery(Struct, kw_only=True, forbid_unknown_fields=True):
    """From when on something is wrong."""

    oldest_seconds: Annotated[
        float, Meta(ge=0, le=1e10, description="For so long a task may wait in its queue.")
    ] = 300.0
    recent_seconds: Annotated[
        float, Meta(ge=0, le=1e10, description="So long ago a death or a burial is still told.")
    ] = 600.0


class TasksQuery(FilterGiven, kw_only=True, forbid_unknown_fields=True):
    """Which tasks."""

    state: Kind | UnsetType = UNSET
    cursor: Cursor = ""
    limit: PageLimit = 50


class TaskQuery(Struct, kw_only=True, forbid_unknown_fields=True):
    """Which task."""

    id: Id


class ObjectsQuery(Struct, kw_only=True, forbid_unknown_fields=True):
    """Which objects."""

    cursor: Cursor = ""
    limit: PageLimit = 50


class ObjectQuery(Struct, kw_only=True, forbid_unknown_fields=True):
    """Which object: by its key, or by the name of its task, and its id if it has one."""

    key: Id | UnsetType = UNSET
    task: Id | UnsetType = UNSET
    id: Id | UnsetType = UNSET


class WorkersQuery(Struct, kw_only=True, forbid_unknown_fields=True):
    """How much of workers."""

    unacked: Annotated[
        bool, Meta(description="Ask the broker, too, how many messages each was delivered.")
    ] = False


class LettersQuery(FilterGiven, kw_only=True, forbid_unknown_fields=True):
    """Which dead letters."""

    group: Text = ""
    cursor: Cursor = ""
    limit: PageLimit = 50


class GroupsQuery(Struct, kw_only=True, forbid_unknown_fields=True):
    """Which groups: by what their letters have in common."""

    task: Pattern | UnsetType = UNSET
    reason: Reason | UnsetType = UNSET
    exception: Pattern | UnsetType = UNSET
    cause: Text | UnsetType = UNSET
    text: Text | UnsetType = UNSET

    def filter(self) -> Filter:
        """Return what is meant."""
        names = self.__struct_fields__
        return FilterGiven(**{name: getattr(self, name) for name in names}).filter()


class LetterQuery(Struct, kw_only=True, forbid_unknown_fields=True):
    """Which dead letter, and how much of it."""

    id: Id
    arguments: Annotated[bool, Meta(description="With its arguments and its whole message.")] = (
        False
    )


class AuditQuery(Struct, kw_only=True, forbid_unknown_fields=True):
    """How much of the audit."""

    limit: Annotated[int, Meta(ge=1, le=1000, description="At most so many.")] = 50


class Choice(Struct, kw_only=True, forbid_unknown_fields=True):
    """Which dead letters: some by their ids, or all, or those of a group that fit a filter."""

    ids: Annotated[list[Id], Meta(max_length=1000)] = []
    group: Text = ""
    filter: FilterGiven = msgspec.field(default_factory=FilterGiven)
    all: bool = False
    dry_run: Annotated[bool, Meta(description="Only count them.")] = False
    limit: Annotated[int, Meta(ge=1, description="At most so many.")] | UnsetType = UNSET
    seconds: Annotated[
        float,
        Meta(ge=0, le=MOST_SECONDS, description="Answer after so long; one is done anyway."),
    ] = MOST_SECONDS
    before: (
        Annotated[
            datetime,
            Meta(tz=True, description="Only those that were buried before; of the answer before."),
        ]
        | UnsetType
    ) = UNSET
    cursor: Cursor = ""

    def chosen(self) -> Chosen:
        """Return what is meant.  Raises Unclear."""
        return Chosen.of(
            ids=tuple(self.ids),
            group=self.group,
            wanted=self.filter.filter(),
            is_all=self.all,
            before_ms=(
                None
                if isinstance(self.before, UnsetType)
                else round(self.before.timestamp() * 1000)
            ),
            cursor=self.cursor,
        )

    @property
    def most(self) -> int | None:
        """At most so many; None: all."""
        return None if isinstance(self.limit, UnsetType) else self.limit


_Rate = Annotated[float, Meta(ge=0.01, le=100_000, description="So many a second.")]
_MaxWaiting = Annotated[
    int,
    Meta(ge=1, le=10**9, description="Go on only while fewer messages wait in a letter's queue."),
]


class ReplayBody(Choice, kw_only=True, forbid_unknown_fields=True):
    """Which dead letters to return to their queues, and how."""

    rate: _Rate = 100.0
    to_queue: Queue = ""
    max_waiting: _MaxWaiting | UnsetType = UNSET


class DiscardBody(Choice, kw_only=True, forbid_unknown_fields=True):
    """Which dead letters to remove for good, and how."""

    rate: _Rate | UnsetType = UNSET


class OneBody(Struct, kw_only=True, forbid_unknown_fields=True):
    """Which dead letter."""

    id: Id


class ReplayOneBody(OneBody, kw_only=True, forbid_unknown_fields=True):
    """Which dead letter, and where it goes."""

    to_queue: Queue = ""


class ReplayEditedBody(ReplayOneBody, kw_only=True, forbid_unknown_fields=True):
    """Which dead letter, and what it is run with: what is not given stays as it is."""

    args: list[Any] | UnsetType = UNSET
    kwargs: dict[str, Any] | UnsetType = UNSET


class RevokeBody(Struct, kw_only=True, forbid_unknown_fields=True):
    """Which tasks to end, and what becomes of those that run."""

    ids: Annotated[list[Id], Meta(min_length=1, max_length=MOST_REVOKED)]
    if_running: Annotated[
        IfRunning, Meta(description="Stop it by SIGTERM, kill it by SIGKILL, or let it finish.")
    ] = IfRunning.STOP
    dry_run: Annotated[bool, Meta(description="Only say what would become of them.")] = False


class MoveBody(Struct, kw_only=True, forbid_unknown_fields=True):
    """Which tasks are to run elsewhere, and which workers may run them."""

    ids: Annotated[list[Id], Meta(min_length=1, max_length=MOST_REVOKED)]
    workers: Annotated[
        list[str],
        Meta(max_length=100, description="Names, or patterns of names; empty: any worker."),
    ]
    prefer: Annotated[
        list[str], Meta(max_length=100, description="Those that are to get it first.")
    ] = []
    dry_run: Annotated[bool, Meta(description="Only say what would become of them.")] = False


class OrderBody(Struct, kw_only=True, forbid_unknown_fields=True):
    """What to stop: a queue (pause), a task (strike), or a worker (drain)."""

    kind: OrderKind
    target: Annotated[
        str, Meta(min_length=1, max_length=500, description="Its name, or a pattern of the shell.")
    ]
    object_id: (
        Annotated[str, Meta(max_length=500, description="Of a strike: only what is about it.")]
        | UnsetType
    ) = UNSET
    why: Annotated[str, Meta(max_length=500)] = ""
    for_seconds: (
        Annotated[float, Meta(gt=0, le=3e7, description="It is over by itself after so long.")]
        | UnsetType
    ) = UNSET
    stop: Annotated[bool, Meta(description="Stop what runs there, too; it runs again.")] = False
    later: Annotated[
        bool, Meta(description="Also for a queue, task or worker that nobody knows yet.")
    ] = False


class ResumeBody(Struct, kw_only=True, forbid_unknown_fields=True):
    """Which order: its id, or the queue, task or worker that it names."""

    order: Annotated[str, Meta(min_length=1, max_length=500)]


class NoBody(Struct, forbid_unknown_fields=True):
    """Nothing: an empty object, or no body."""


def read_query(kind: type[S], query: str) -> S:
    """Return what a query asks.  Raises Problem; each parameter may stand once."""
    try:
        pairs = parse_qsl(
            query,
            keep_blank_values=True,
            strict_parsing=bool(query),
            errors="strict",
            max_num_fields=_MOST_PARAMETERS,
        )
    except ValueError as exc:
        raise Problem(
            HTTPStatus.BAD_REQUEST, "bad_query", "The query is none, or not in UTF-8."
        ) from exc
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise _bad(f"{name[:50]!r} is given more than once.", name[:50])
    try:
        return msgspec.convert(dict(pairs), kind, strict=False)
    except msgspec.ValidationError as exc:
        raise _bad_of(exc) from exc


def read_body(kind: type[S], body: bytes) -> S:
    """Return what a body says.  Raises Problem."""
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except msgspec.ValidationError as exc:
        raise _bad_of(exc) from exc
    except (msgspec.MsgspecError, ValueError, RecursionError) as exc:
        raise Problem(
            HTTPStatus.BAD_REQUEST, "bad_body", "The body is no JSON in UTF-8, or nested too deep."
        ) from exc


def _bad_of(exc: msgspec.ValidationError) -> Problem:
    # "Expected `int` >= 1 - at `$.limit`", "Object contains unknown field `x` - at `$.filter`"
    said, _, path = str(exc)[:500].partition(" - at `$")
    name = path.strip("`").lstrip(".")
    for begin in ("Object contains unknown field `", "Object missing required field `"):
        if said.startswith(begin):
            name = ".".join(filter(None, [name, said.removeprefix(begin).rstrip("`")]))
    return _bad(f"{said}.", name)


def _bad(detail: str, name: str) -> Problem:
    return Problem(HTTPStatus.BAD_REQUEST, "bad_parameter", detail, name)

"""How many rows have an open task, and at how many of them nobody looks: for doctor and metrics."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from django.db import DatabaseError, connections, transaction
from django.db.models import BooleanField, Count, ExpressionWrapper, Q

from celery_reliable.contrib.django.rows.model import OPEN, TaskStatus, not_seen_for
from celery_reliable.contrib.django.rows.places import RowPlace
from celery_reliable.contrib.django.rows.reconciling import row_places
from celery_reliable.findings import UNSEEN_SECONDS, OpenRows

__all__ = ["MOST_ROWS", "open_rows"]

#: So many rows of a model are counted, and no more are read.
MOST_ROWS = 10_000


def open_rows() -> list[OpenRows]:
    """Return what is open, of each model of rows with tasks.  Raises what the databases raise."""
    found = []
    for place in row_places():
        with _connected(place.using):
            try:
                with _undone(place.using):
                    found.append(_counted(place))
            except DatabaseError:
                # Before the first migration there are no rows.
                if _has_table(place):
                    raise
    return found


def _open(place: RowPlace) -> Any:
    # Read from the index of task_seen_at, where rows without an open task are null.
    rows = place.all_rows().filter(task_seen_at__isnull=False, task_status__in=OPEN)
    return rows.order_by("task_seen_at")


def _counted(place: RowPlace) -> OpenRows:
    unseen = not_seen_for(UNSEEN_SECONDS)
    counts = _open(place)[:MOST_ROWS].aggregate(
        waiting=Count("pk", filter=Q(task_status=TaskStatus.WAITING)),
        running=Count("pk", filter=Q(task_status=TaskStatus.RUNNING)),
        unseen=Count("pk", filter=unseen),
    )
    names: set[str] = set()
    if counts["unseen"]:
        # The same rows: by a filter the database would read all that are unseen.
        marked = _open(place).annotate(is_unseen=ExpressionWrapper(unseen, BooleanField()))
        found = marked.values_list("task_name", "is_unseen")[:MOST_ROWS]
        names = {name for name, is_unseen in found if is_unseen}
    return OpenRows(
        model=place.model._meta.label,
        unseen_tasks=sorted(names),
        is_all=counts["waiting"] + counts["running"] < MOST_ROWS,
        **counts,
    )


def _has_table(place: RowPlace) -> bool:
    tables = connections[place.using].introspection.table_names()
    return place.owner._meta.db_table in tables


@contextmanager
def _connected(using: str) -> Iterator[None]:
    """Close a connection that is opened here: the thread may be one of many, each for a scrape."""
    connection = connections[using]
    is_ours = connection.connection is None
    try:
        yield
    finally:
        if is_ours:
            connection.close()


def _undone(using: str) -> Any:
    """Let a query that fails in somebody's transaction not end that."""
    is_inside = connections[using].in_atomic_block
    return transaction.atomic(using=using) if is_inside else nullcontext()

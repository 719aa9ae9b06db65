"""How many rows have an open task, and at how many of them nobody looks: for doctor and metrics."""

from __future__ import annotations

from collections import Counter

from django.db import DatabaseError, connections, transaction
from django.db.models import BooleanField, ExpressionWrapper

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
        connection = connections[place.using]
        is_ours = connection.connection is None
        try:
            # In a transaction of somebody's, a query that fails does not end that.
            with transaction.atomic(using=place.using):
                found.append(_counted(place))
        except DatabaseError:
            # Before the first migration there are no rows.
            if _has_table(place):
                raise
        finally:
            # The thread may be one of many, each for a scrape.
            if is_ours:
                connection.close()
    return found


def _counted(place: RowPlace) -> OpenRows:
    # Read from the index of task_seen_at, where rows without an open task are null.
    rows = place.all_rows().filter(task_seen_at__isnull=False, task_status__in=OPEN)
    is_unseen = ExpressionWrapper(not_seen_for(UNSEEN_SECONDS), BooleanField())
    columns = rows.order_by("task_seen_at").annotate(is_unseen=is_unseen)
    found = columns.values_list("task_status", "task_name", "is_unseen")[:MOST_ROWS]
    counts = Counter(status for status, _, _ in found)
    unseen = [name for _, name, is_unseen in found if is_unseen]
    return OpenRows(
        model=place.model._meta.label,
        waiting=counts[TaskStatus.WAITING],
        running=counts[TaskStatus.RUNNING],
        unseen=len(unseen),
        unseen_tasks=sorted(set(unseen)),
        is_all=len(found) < MOST_ROWS,
    )


def _has_table(place: RowPlace) -> bool:
    tables = connections[place.using].introspection.table_names()
    return place.owner._meta.db_table in tables

"""From a task to the row that waits for it."""

from __future__ import annotations

from typing import Any

from django.contrib.admin.utils import quote
from django.urls import NoReverseMatch, reverse

from celery_reliable.contrib.django.desk.visits import Visit
from celery_reliable.contrib.django.rows import RowTask

__all__ = ["row_of"]


def row_of(visit: Visit, task_name: str, task_id: str) -> tuple[str, str]:
    """Return the address of the row that a task works on, and its name; empty where there is none,
    it is not in this admin, or who asks may not see it.
    """
    task = visit.desk.app.tasks.get(task_name)
    if not isinstance(task, RowTask):
        return "", ""
    place = task.row_place_of(None)
    options = place.model._meta
    user: Any = visit.request.user
    rights = [f"{options.app_label}.{act}_{options.model_name}" for act in ("view", "change")]
    if not any(map(user.has_perm, rights)):
        return "", ""
    row = place.all_rows(place.model).filter(task_id=task_id).first()
    if row is None:
        return "", ""
    name = f"admin:{options.app_label}_{options.model_name}_change"
    try:
        address = reverse(name, args=[quote(row.pk)], current_app=visit.admin.admin_site.name)
    except NoReverseMatch:
        return "", ""
    return str(address), f"{options.verbose_name} {row.pk}"

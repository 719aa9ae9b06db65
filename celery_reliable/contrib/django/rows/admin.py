"""What the admin shows of a row's task."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html

from celery_reliable.contrib.django.permissions import may
from celery_reliable.contrib.django.rows.model import missed
from celery_reliable.operations import Right

__all__ = ["TaskRowAdmin", "UnpublishedFilter"]

_PAGE = "admin:celery_reliable_deadletter_task"


class UnpublishedFilter(admin.SimpleListFilter):
    """For ``list_filter``: rows whose task nobody has begun for a minute.  It waits in its queue
    for so long, or was never published: then ``celery_reliable.rows`` publishes it.
    """

    title = "beginning of its task"
    parameter_name = "task_begins"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the one choice."""
        return [("late", "not begun for a minute")]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        """Return the rows that are meant."""
        return queryset.filter(missed(60.0)) if self.value() == "late" else queryset


class TaskRowAdmin(admin.ModelAdmin):
    """The admin of a model that is derived from `TaskRow`: what became of the row's task, to be
    read only, and a link to the task's page at the desk for who may see it.

    For ``list_display`` and ``list_filter`` there is ``task_status``, and all other columns.
    """

    _task_fields: tuple[str, ...] = (
        "task_status",
        "task_link",
        "task_attempt",
        "task_losses",
        "task_started_at",
        "task_ended_at",
        "task_result",
        "task_error",
    )

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return yours, and those of the task."""
        own = super().get_readonly_fields(request, obj)
        link = "task_link" if may(request.user, Right.VIEW) else "task_id"
        task = [link if name == "task_link" else name for name in self._task_fields]
        return (*own, *(name for name in task if name not in own))

    @admin.display(description="task")
    def task_link(self, row: Any) -> str:
        """Link to the page of the row's task."""
        if not row.task_id:
            return ""
        try:
            page = reverse(_PAGE, args=[row.task_id], current_app=self.admin_site.name)
        except NoReverseMatch:
            # The desk is not in this admin.
            return str(row.task_id)
        return str(format_html('<a href="{}">{}</a>', page, row.task_id))

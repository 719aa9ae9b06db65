"""The desk in Django's admin: what waits and why, what failed and why, and acts upon it.

The pages ask `celery_reliable.operations`, and decide nothing.  Arguments are redacted unless
somebody with the permission asks for them.  Each act asks first, and is in the audit and in the
admin's log.
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.urls import NoReverseMatch, path, reverse
from django.utils.html import format_html
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables

from celery_reliable.contrib.django.models import DeadLetter
from celery_reliable.contrib.django.pages import READING, Page, act_page
from celery_reliable.contrib.django.project import may, opened_desk
from celery_reliable.contrib.django.rows.model import missed
from celery_reliable.contrib.django.visits import NAME, Visit, shown
from celery_reliable.exceptions import ReliableError
from celery_reliable.operations import BadParameter, Right

__all__ = ["PAGES", "DeadLetterAdmin", "TaskRowAdmin", "UnpublishedFilter"]

PAGES = (
    *READING,
    Page("act", "act/<slug:name>/", answer=act_page, methods=("GET", "HEAD", "POST")),
)
_TITLES = {200: "Not now", 400: "This cannot be meant", 404: "Not found"}

_PAGE = "admin:celery_reliable_deadletter_task"


@admin.register(DeadLetter)
class DeadLetterAdmin(admin.ModelAdmin):
    """All pages of the desk.  They replace Django's own views, as the model has no rows."""

    def _path(self, page: Page, name: str) -> Any:
        @sensitive_post_parameters()
        @sensitive_variables()
        def view(request: HttpRequest, **given: str) -> HttpResponse:
            if request.method not in page.methods:
                return HttpResponseNotAllowed(page.methods)
            visit = Visit(self, request)
            visit.require(Right.VIEW)
            of_path = {name: unquote(one) for name, one in given.items()}
            try:
                with opened_desk(sees_arguments=visit.may(Right.SEE_ARGUMENTS)) as visit.desk:
                    return page.answer(visit, page, of_path)
            except ReliableError as exc:
                is_there = not isinstance(exc, LookupError)
                status = (400 if isinstance(exc, BadParameter) else 200) if is_there else 404
                context = {"title": _TITLES[status], "problem": shown(str(exc))}
                return visit.render("problem", context, status=status)

        return path(page.route, self.admin_site.admin_view(view), name=name)

    def get_urls(self) -> list[Any]:
        """Return the pages; the admin's menu leads to that with Django's name for a list."""
        names = {one.name: one for one in PAGES}
        names["changelist"] = names["overview"]
        return [self._path(one, NAME + name) for name, one in names.items()]


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

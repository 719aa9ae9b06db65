"""What is registered in the admin: every page of the desk, below the dead letters."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.urls import path
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables

from celery_reliable.contrib.django.desk.acting import act_page
from celery_reliable.contrib.django.desk.reading import READING, Page
from celery_reliable.contrib.django.desk.visits import NAME, Visit, shown
from celery_reliable.contrib.django.models import DeadLetter
from celery_reliable.contrib.django.opening import opened_desk
from celery_reliable.exceptions import ReliableError
from celery_reliable.operations import BadParameter, Right

__all__ = ["PAGES", "DeadLetterAdmin"]

PAGES = (
    *READING,
    Page("act", "act/<slug:name>/", answer=act_page, methods=("GET", "HEAD", "POST")),
)
_TITLES = {200: "Not now", 400: "This cannot be meant", 404: "Not found"}


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

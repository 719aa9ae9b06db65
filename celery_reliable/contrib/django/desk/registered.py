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
from celery_reliable.contrib.django.models import DeadLetter, Desk
from celery_reliable.contrib.django.opening import opened_desk
from celery_reliable.contrib.django.permissions import may
from celery_reliable.exceptions import ReliableError
from celery_reliable.operations import BadCursor, Right

__all__ = ["PAGES", "DeadLetterAdmin", "DeskAdmin"]

PAGES = (
    *READING,
    Page("act", "act/<slug:name>/", answer=act_page, methods=("GET", "HEAD", "POST")),
)
_OVERVIEW = next(one for one in PAGES if one.name == "overview")


class _Pages(admin.ModelAdmin):
    """Pages over the ledger.  They replace Django's own views, as the model has no rows."""

    def has_add_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """Nobody makes dead letters by hand."""
        return False

    def _path(self, page: Page, route: str, name: str) -> Any:
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
                title, status = "Not now", 200
                if isinstance(exc, BadCursor):
                    title, status = "No such page", 400
                elif isinstance(exc, LookupError):
                    title, status = "Not found", 404
                context = {"title": title, "problem": shown(str(exc))}
                return visit.render("problem", context, status=status)

        return path(route, self.admin_site.admin_view(view), name=name)


@admin.register(DeadLetter)
class DeadLetterAdmin(_Pages):
    """All pages of the desk."""

    def get_urls(self) -> list[Any]:
        """Return the pages."""
        return [self._path(one, one.route, NAME + one.name) for one in PAGES]


@admin.register(Desk)
class DeskAdmin(_Pages):
    """The entry of the desk in the admin's menu."""

    def has_view_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """Whether who asks may see the desk: a name for an entry has no permission of its own."""
        return may(request.user, Right.VIEW)

    def get_urls(self) -> list[Any]:
        """Return the one page, the first of the desk."""
        return [self._path(_OVERVIEW, "", "celery_reliable_desk_changelist")]

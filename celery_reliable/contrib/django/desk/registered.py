"""What is registered in the admin: every page of the desk, below the dead letters."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.shortcuts import redirect
from django.urls import path, reverse
from django.views.decorators.debug import sensitive_post_parameters

from celery_reliable.contrib.django.desk.acting import act_page
from celery_reliable.contrib.django.desk.fleet_runs import fleet_run_page, fleet_runs_page
from celery_reliable.contrib.django.desk.letters import groups_page, letter_page, letters_page
from celery_reliable.contrib.django.desk.overview import overview_page
from celery_reliable.contrib.django.desk.places import (
    audit_page,
    find_object_page,
    object_page,
    objects_page,
    orders_page,
    workers_page,
)
from celery_reliable.contrib.django.desk.tasks import find_page, task_page, tasks_page
from celery_reliable.contrib.django.desk.visits import NAME, Page, Visit, shown
from celery_reliable.contrib.django.models import DeadLetter, Desk
from celery_reliable.contrib.django.permissions import may
from celery_reliable.exceptions import ReliableError, UnknownDeadLetter
from celery_reliable.log import as_shown
from celery_reliable.operations import BadCursor, Right, UnknownGroup, broker_errors

__all__ = ["PAGES", "DeadLetterAdmin", "DeskAdmin"]

#: The names of the first two are those that the admin links to.
PAGES = (
    Page("changelist", "", letters_page),
    Page("change", "<path:object_id>/change/", letter_page),
    Page("groups", "groups/", groups_page),
    Page(
        "act",
        "act/<slug:name>/",
        act_page,
        None,
        ("GET", "HEAD", "POST"),
        sensitive=("args", "kwargs"),
    ),
    Page("overview", "desk/", overview_page),
    Page("tasks", "tasks/", tasks_page),
    Page("find", "tasks/find/", find_page),
    Page("task", "tasks/task/<path:task_id>/", task_page),
    Page("objects", "objects/", objects_page),
    Page(
        "find_object",
        "objects/find/",
        find_object_page,
        methods=("POST",),
        sensitive=("object_id",),
    ),
    Page("object", "objects/object/<path:key>/", object_page),
    Page("workers", "workers/", workers_page),
    Page("fleet_runs", "runs/", fleet_runs_page),
    Page("fleet_run", "runs/run/<path:run>/", fleet_run_page),
    Page("orders", "orders/", orders_page),
    Page("audit", "audit/", audit_page),
)


@admin.register(DeadLetter)
class DeadLetterAdmin(admin.ModelAdmin):
    """Pages over the ledger. They replace Django's own views, as the model has no rows."""

    def get_urls(self) -> list[Any]:
        """Return the pages."""
        view = self.admin_site.admin_view
        return [path(one.route, view(self._view(one)), name=NAME + one.name) for one in PAGES]

    def may(self, request: HttpRequest, right: Right) -> bool:
        """Whether who asks may do it; what is overridden of the admin's own methods counts."""
        own = {
            Right.VIEW: self.has_view_permission,
            Right.REPLAY: self.has_change_permission,
            Right.DISCARD: self.has_delete_permission,
        }
        return bool(own[right](request) if right in own else may(request.user, right))

    def has_add_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """Nobody makes dead letters by hand."""
        return False

    def has_view_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """Whether who asks may see the desk."""
        return may(request.user, Right.VIEW)

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """Whether who asks may replay."""
        return may(request.user, Right.REPLAY)

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """Whether who asks may discard."""
        return may(request.user, Right.DISCARD)

    def _view(self, page: Page) -> Any:
        def view(request: HttpRequest, **given: Any) -> HttpResponse:
            return self._answer(page, request, **given)

        return sensitive_post_parameters(*page.sensitive)(view) if page.sensitive else view

    def _answer(self, page: Page, request: HttpRequest, **given: Any) -> HttpResponse:
        if request.method not in page.methods:
            return HttpResponseNotAllowed(page.methods)
        visit = Visit(self, request)
        if page.right is not None:
            visit.require(page.right)
        try:
            return page.answer(visit, **given)
        except BadCursor as exc:
            return visit.render(
                "problem", {"title": "No such page", "problem": shown(str(exc))}, status=400
            )
        except (UnknownDeadLetter, UnknownGroup) as exc:
            if request.method != "POST":
                raise Http404(shown(str(exc))) from exc
            messages.warning(request, shown(str(exc)))
            return redirect(visit.link("changelist"))
        except ReliableError as exc:
            return visit.render("problem", {"title": "Not now", "problem": shown(str(exc))})
        except broker_errors(visit.desk.app) as exc:
            problem = f"The broker could not be reached: {shown(as_shown(exc))}"
            return visit.render("problem", {"title": "Not now", "problem": problem})
        finally:
            visit.close()


@admin.register(Desk)
class DeskAdmin(admin.ModelAdmin):
    """The entry of the desk in the admin's menu."""

    def get_urls(self) -> list[Any]:
        """Return the one page, which leads to the desk."""
        view = self.admin_site.admin_view(self.changelist_view)
        return [path("", view, name="celery_reliable_desk_changelist")]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Lead to the desk, which is a page of the dead letters."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        return redirect(reverse(f"admin:{NAME}overview", current_app=self.admin_site.name))

    def has_view_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """Whether who asks may see the desk."""
        return may(request.user, Right.VIEW)

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Whether it is in the menu."""
        return self.has_view_permission(request)

    def has_add_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """Nobody adds anything."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """Nobody changes anything."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """Nobody deletes anything."""
        return False

"""The pages that show something.  A page is declared: its query, its title and its address.

Its template has the same name, and reads the query's result, as JSON has it, from ``found``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.contrib import messages
from django.contrib.admin.utils import quote
from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from celery_reliable.contrib.django.desk.forms import OperationForm
from celery_reliable.contrib.django.desk.visits import Visit, shown
from celery_reliable.contrib.django.rows import RowTask
from celery_reliable.contrib.django.rows.places import all_rows
from celery_reliable.exceptions import ObjectIdError
from celery_reliable.operations import QUERIES, Status, TaskInFull, Throughputs, as_json

__all__ = ["READING", "Page"]

_QUERIES = {one.name: one for one in QUERIES}
_PAGE = 50
#: A list of what fits looks for so long; then it says where it goes on.
_LOOK_SECONDS = 2.0
#: Characters of a value in a list, and in a title.
_LONGEST, _LONGEST_TITLE = 1_000, 300


def _read(visit: Visit, page: Page, path: Mapping[str, str]) -> HttpResponse:
    """Run the page's query, and show its result.  If the filter is wrong, say why instead."""
    operation, tab = _QUERIES[page.query], page.tab or page.name
    asked = OperationForm(operation, visit.request.GET)
    context: dict[str, Any] = {"asked": asked}
    # The id of a single thing comes from the path, so its form is never complete.
    if not asked.is_valid() and not path:
        problem = {"title": page.title, "problem": shown(asked.problem)}
        return visit.render(page.name, {**context, **problem}, tab, 400)
    given = {**asked.given, **page.preset, **path}
    needed = [one.param.needs for one in operation.parameters if given.get(one.name)]
    visit.require(*filter(None, needed))
    if operation.takes("cursor"):
        given |= {"cursor": visit.request.GET.get("cursor", ""), "limit": _PAGE}
    found = operation.run(visit.desk, given, look_seconds=_LOOK_SECONDS)
    if cursor := getattr(found, "cursor", ""):
        context["next"] = asked.query(cursor=cursor)
    values = as_json({"found": found, **page.more(visit, found)})
    context |= shown(values) if path else shown(values, _LONGEST)
    context["title"] = shown(page.title.format_map(values["found"]), _LONGEST_TITLE)
    is_absent = getattr(found, "state", "") == "absent"
    return visit.render(page.name, context, tab, 404 if is_absent else 200)


def _of_the_overview(visit: Visit, found: Status) -> dict[str, Any]:
    throughputs = Throughputs.of(visit.desk.ledger)
    pieces = [*throughputs.slices(10, 6), *throughputs.slices(180, 8)]
    most = max(max(one.processed, one.lost) for one in pieces)
    return {
        "groups": visit.desk.letter_groups.all().groups,
        "nobody_alive": [one.sentence for one in found.nobody_alive],
        "pieces": pieces,
        "most": most,
    }


def _of_a_task(visit: Visit, found: TaskInFull) -> dict[str, Any]:
    """Return the row that a task works on; nothing where there is none, it is not in this admin, or
    who asks may not see it.
    """
    task = visit.desk.app.tasks.get(found.name)
    if not isinstance(task, RowTask):
        return {}
    model, site = task.row_of(None).model, visit.admin.admin_site
    options, user = model._meta, visit.request.user
    names = [f"{options.app_label}.{act}_{options.model_name}" for act in ("view", "change")]
    row = all_rows(model).filter(task_id=found.task_id).first()
    if row is None or not (site.is_registered(model) and any(map(user.has_perm, names))):
        return {}
    name = f"admin:{options.app_label}_{options.model_name}_change"
    address = reverse(name, args=[quote(row.pk)], current_app=site.name)
    return {"row": {"address": address, "name": f"{options.verbose_name} {row.pk}"}}


def _tasks(visit: Visit, page: Page, path: Mapping[str, str]) -> HttpResponse:
    """List tasks.  If the id of one is given, lead to its page."""
    task_id = visit.request.GET.get("id", "").strip()
    return redirect(visit.link("task", task_id)) if task_id else _read(visit, page, path)


def _find_object(visit: Visit, page: Page, path: Mapping[str, str]) -> HttpResponse:
    """Lead to an object's page, by its task and its id: posted, so that it is in no address."""
    given = visit.request.POST
    name, object_id = given.get("task", "").strip(), given.get("object_id", "").strip()
    try:
        return redirect(visit.link("object", visit.desk.objects.key_of(name, object_id or None)))
    except ObjectIdError as exc:
        messages.warning(visit.request, shown(str(exc)))
        return redirect(visit.link("objects"))


@dataclass(frozen=True)
class Page:
    """A page of the desk.

    Attributes:
        name: of its URL, and of its template.
        route: below that of the dead letters.
        query: the name of the operation that it shows.  The path and the query of the address give
            the operation's parameters.
        title: may name fields of the result in braces.
        tab: the page of the menu to which it belongs; empty: itself.
        preset: parameters that the page sets itself.
        more: returns what the template needs beside the result.
        answer: makes the response from the visit, the page, and the parameters in the path.
        methods: of HTTP.  Only a POST changes anything.
    """

    name: str
    route: str
    query: str = ""
    title: str = ""
    tab: str = ""
    preset: Mapping[str, Any] = field(default_factory=dict)
    more: Callable[[Visit, Any], dict[str, Any]] = lambda visit, found: {}
    answer: Callable[[Visit, Page, Mapping[str, str]], HttpResponse] = _read
    methods: tuple[str, ...] = ("GET", "HEAD")


READING = (
    Page("letters", "", "dead_letters", "Dead letters"),
    Page("groups", "groups/", "dead_letter_groups", "Dead letters by group"),
    Page("overview", "desk/", "status", "Desk", more=_of_the_overview),
    Page("tasks", "tasks/", "tasks", "Tasks", answer=_tasks),
    Page("task", "tasks/task/<path:id>/", "task", "Task {task_id}", "tasks", more=_of_a_task),
    Page("objects", "objects/", "objects", "Objects"),
    Page("find_object", "objects/find/", answer=_find_object, methods=("POST",)),
    Page("object", "objects/object/<path:key>/", "one_object", "Object {object_name}", "objects"),
    Page("workers", "workers/", "workers", "Workers"),
    Page("fleet_runs", "runs/", "runs", "Runs", "tasks"),
    Page("fleet_run", "runs/run/<path:id>/", "run", "Run {run}", "tasks"),
    Page("orders", "orders/", "orders", "Orders"),
    Page("audit", "audit/", "audit", "Audit", preset={"limit": 200}),
)

"""The pages of the desk in the admin.

A page that shows something is declared: its query, its title and its address.  Its template has the
same name, and reads the query's result, as JSON has it, from ``found``.

The page of an act asks, says what would become of what is meant, and does it.  A request does as
much as there is time for.  If more is left then, the page asks about that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html import unescape
from typing import Any

from django.contrib import messages
from django.contrib.admin.utils import quote
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import strip_tags

from celery_reliable.contrib.django.models import DeadLetter
from celery_reliable.contrib.django.rows import RowTask
from celery_reliable.contrib.django.rows.model import all_rows
from celery_reliable.contrib.django.visits import (
    ACT_PAGES,
    OF_ADMIN,
    OperationForm,
    Visit,
    shown,
)
from celery_reliable.exceptions import ReliableError
from celery_reliable.operations import (
    FATES,
    QUERIES,
    BadParameter,
    Done,
    Operation,
    Status,
    TaskInFull,
    as_json,
    counted,
)

__all__ = ["READING", "Page", "act_page"]

_QUERIES = {one.name: one for one in QUERIES}
_PAGE = 50
#: Characters of a value in a list; in a title, and in what is said of an act.
_LONGEST, _LONGEST_SAID = 1_000, 300
#: A browser and a thread of the web server wait for an act at most so long.
_LONGEST_SECONDS = 10.0
#: For so long things are counted before somebody is asked.
_COUNT_SECONDS = 0.15


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
    found = operation.run(visit.desk, given)
    if cursor := getattr(found, "cursor", ""):
        context["next"] = asked.query(cursor=cursor)
    values = as_json({"found": found, **page.more(visit, found)})
    context |= shown(values) if path else shown(values, _LONGEST)
    context["title"] = shown(page.title.format_map(values["found"]), _LONGEST_SAID)
    is_absent = getattr(found, "state", "") == "absent"
    return visit.render(page.name, context, tab, 404 if is_absent else 200)


def _of_the_overview(visit: Visit, found: Status) -> dict[str, Any]:
    return {
        "groups": visit.desk.letter_groups.all().groups,
        "nobody_alive": [one.sentence for one in found.nobody_alive],
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
    except BadParameter as exc:
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


def act_page(visit: Visit, page: Any, path: Mapping[str, str]) -> HttpResponse:
    """Ask whether an act is meant; when somebody has said so, do it."""
    operation = OF_ADMIN.get(path["name"])
    if operation is None:
        raise Http404(f"There is no act {path['name']!r}.")
    visit.require(*operation.needs)
    is_posted = visit.request.method == "POST"
    form = OperationForm(operation, visit.request.POST if is_posted else visit.request.GET)
    shows: dict[str, Any] = {}
    try:
        if form.is_valid():
            if is_posted and "confirmed" in form.data:
                return _do(visit, operation, form)
            if operation.takes("dry_run"):
                shows["meant"] = _run(visit, form, _COUNT_SECONDS, dry_run=True)
        # What nobody has typed yet is not wrong.
        elif is_posted or any(form.data.get(name) for name in form.errors):
            shows = {"problem": form.problem, "status": 400}
    except ReliableError as exc:
        shows = {"problem": str(exc), "status": 400 if is_posted else 200, "is_possible": is_posted}
    return _render(visit, operation, form, **shows)


def _run(visit: Visit, form: OperationForm, seconds: float, **more: Any) -> Any:
    who = f"django:{visit.request.user.get_username()}"
    return form.operation.run(visit.desk, {**form.given, "seconds": seconds, **more}, by=who)


def _do(visit: Visit, operation: Operation, form: OperationForm) -> HttpResponse:
    result = _run(visit, form, _LONGEST_SECONDS)
    facts, limit = as_json(result), form.given.get("limit")
    about = ", ".join(text for _, text in form.meant) or "all"
    context = {"visit": visit, "operation": operation, **_told(facts)}
    outcome = render_to_string("admin/celery_reliable/outcome.html", context)
    log = " ".join(unescape(strip_tags(f"{_words(operation)}: {outcome}")).split())
    visit.admin.log_change(visit.request, DeadLetter(task_id=shown(about, 200)), log)
    tell = messages.warning if facts.get("problem") else messages.success
    tell(visit.request, outcome)
    if not isinstance(result, Done) or result.is_whole or result.done == limit:
        return redirect(visit.link(ACT_PAGES[operation.name]))
    if limit:
        form.put(limit=limit - result.done)
    # What dies again meanwhile is not meant.
    form.put(before=result.before, cursor=result.cursor)
    return _render(visit, operation, form, meant=_run(visit, form, _COUNT_SECONDS, dry_run=True))


def _render(
    visit: Visit,
    operation: Operation,
    form: OperationForm,
    *,
    meant: Any = None,
    problem: str = "",
    status: int = 200,
    is_possible: bool = True,
) -> HttpResponse:
    facts = {} if meant is None else as_json(meant)
    if isinstance(meant, Done):
        form.put(before=meant.before)
    context = {
        "title": _title(visit, operation, form, meant),
        "operation": operation,
        **_told(facts),
        "form": form,
        "meant": shown(form.meant),
        "is_possible": is_possible,
        "back": visit.link(ACT_PAGES[operation.name]),
        "problem": shown(problem, 2_000),
    }
    return visit.render("act", context, ACT_PAGES[operation.name], status)


def _told(facts: Any) -> dict[str, Any]:
    """Return a result for a template, and what became of the things that are in it."""
    found = shown(facts, _LONGEST_SAID)
    fates = [(words, found[name]) for name, words in FATES.items() if found.get(name)]
    return {"facts": found, "fates": fates}


def _title(visit: Visit, operation: Operation, form: OperationForm, meant: Any) -> str:
    if meant is None:
        return f"{_words(operation)}?"
    if operation.asks is None:
        return f"{_words(operation).split()[0]} {counted(meant.done, operation.noun)}?"
    return str(shown(operation.asks(visit.desk, form.given, meant), _LONGEST_SAID))


def _words(operation: Operation) -> str:
    return operation.name.replace("_", " ").capitalize()

"""The pages of tasks: those that live, by state, and one of any."""

from __future__ import annotations

from typing import Any

from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.debug import sensitive_variables

from celery_reliable.contrib.django.desk.forms import filter_of, pages_of
from celery_reliable.contrib.django.desk.rows import row_of
from celery_reliable.contrib.django.desk.visits import Visit, quoted, shown
from celery_reliable.exceptions import UnknownDeadLetter
from celery_reliable.operations import Right, Task, TaskInFull

__all__ = ["find_page", "task_page", "tasks_page"]

#: Characters of a value in a list.
_LONGEST = 300


def tasks_page(visit: Visit) -> HttpResponse:
    """List tasks that live and fit: those that run, then those that wait."""
    given = visit.request.GET
    asked = filter_of("tasks", given)
    page = pages_of("tasks", visit.desk, asked)
    views, cursor = [_row(visit, one) for one in page.items], page.cursor
    context = {
        "title": "Tasks",
        "tasks": views,
        "asked": asked,
        "next": asked.query(cursor=cursor) if cursor else "",
        "is_first": not given.get("cursor"),
        "find_link": visit.link("find"),
        "runs_link": visit.link("fleet_runs"),
        "problem": shown(asked.problem),
    }
    return visit.render("tasks", context, "tasks", 400 if asked.problem else 200)


def _row(visit: Visit, one: Task) -> dict[str, Any]:
    view = shown(one, _LONGEST)
    return {
        **view,
        "link": visit.link("task", one.task_id),
        "id": view["task_id"],
        "quoted": quoted(one.task_id),
    }


def find_page(visit: Visit) -> HttpResponse:
    """Lead to the page of the task whose id is given."""
    task_id = visit.request.GET.get("id", "").strip()
    return redirect(visit.link("task", task_id) if task_id else visit.link("tasks"))


@sensitive_variables()
def task_page(visit: Visit, task_id: str) -> HttpResponse:
    """Show one task, whatever became of it; its arguments when somebody asks who may see them."""
    task_id = unquote(task_id)
    with_arguments = "arguments" in visit.request.GET
    if with_arguments and not visit.may(Right.SEE_ARGUMENTS):
        raise PermissionDenied
    desk = visit.desk
    task = desk.tasks.get(task_id)
    traceback = ""
    if task.state == "dead":
        try:
            traceback = desk.letters.get(task_id).traceback
        except UnknownDeadLetter:
            # It was replayed just now.
            pass
    row_link, row_name = row_of(visit, task.name, task_id)
    context = {
        "title": f"Task {shown(task_id, _LONGEST)}",
        "task": shown(task),
        "why": shown(task.why),
        "traceback": shown(traceback),
        "quoted": quoted(task_id),
        "letter_link": visit.link("change", task_id) if task.state == "dead" else "",
        "name_link": visit.link("tasks", task=task.name[:_LONGEST]) if task.name else "",
        "holder_link": visit.link("task", task.why.holder) if task.why.holder else "",
        "row_link": row_link,
        "row_name": shown(row_name, _LONGEST),
        "run_link": visit.link("fleet_run", task.run) if task.run else "",
        "object_link": visit.link("object", key) if (key := _object_of(task)) else "",
        "object_name": shown(task.object_name or key, _LONGEST),
        "arguments": shown(desk.tasks.arguments(task_id)) if with_arguments else None,
        "with_arguments": with_arguments,
        "has_arguments": task.is_known,
        "is_revocable": task.state in ("parked", "queued", "running"),
    }
    return visit.render("task", context, "tasks", 404 if task.state == "absent" else 200)


def _object_of(task: TaskInFull) -> str:
    return task.why.object_key or task.object_key

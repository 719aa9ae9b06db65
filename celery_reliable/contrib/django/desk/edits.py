"""A dead letter run again with other arguments, by who may see them."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import messages
from django.contrib.admin.utils import unquote
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils.html import format_html
from django.views.decorators.debug import sensitive_variables

from celery_reliable.contrib.django.desk.visits import Visit, shown
from celery_reliable.operations import (
    CannotReplay,
    Right,
    editable_arguments,
    replay_dead_letter_edited,
)

__all__ = ["edit_page"]

_LONGEST = 300


@sensitive_variables()
def edit_page(visit: Visit, object_id: str) -> HttpResponse:
    """Show a letter's arguments in a form; when it is posted, publish a new task with them."""
    visit.require(Right.REPLAY)
    task_id = unquote(object_id)
    letter = visit.desk.letters.get(task_id)
    problem, args, kwargs, to_queue = "", "", "", ""
    try:
        args, kwargs = (json.dumps(one, indent=2) for one in editable_arguments(letter))
        is_editable = True
        if visit.request.method == "POST":
            given = visit.request.POST
            args, kwargs = given.get("args", ""), given.get("kwargs", "")
            to_queue = given.get("to_queue", "").strip()[:255]
            return _publish(visit, task_id, args, kwargs, to_queue)
    except CannotReplay as exc:
        problem, is_editable = shown(str(exc)), bool(visit.request.POST)
    except ValueError as exc:
        problem = shown(str(exc))
    context = {
        "title": f"Replay {shown(task_id, _LONGEST)} with other arguments",
        "letter": {"name": shown(letter.name, _LONGEST), "task_id": shown(task_id, _LONGEST)},
        "args": args,
        "kwargs": kwargs,
        "to_queue": to_queue,
        "is_editable": is_editable,
        "problem": problem,
        "back": visit.link("change", task_id),
    }
    is_refused = problem and visit.request.method == "POST"
    return visit.render("edit", context, "changelist", 400 if is_refused else 200)


@sensitive_variables()
def _publish(visit: Visit, task_id: str, args: str, kwargs: str, to_queue: str) -> HttpResponse:
    new_args = _read("Positional arguments", args, list)
    new_kwargs = _read("Keyword arguments", kwargs, dict)
    done = replay_dead_letter_edited(
        visit.desk, visit.by, id_=task_id, to_queue=to_queue, args=new_args, kwargs=new_kwargs
    )
    new_id = done.new_task_id
    visit.log(task_id, f"Replayed with other arguments as {new_id}")
    # Not there at once: a short task has ended by then, and is not known any more.
    link = visit.link("task", new_id)
    told = format_html(
        'Published as <a href="{}">{}</a>; the dead letter is discarded.', link, new_id
    )
    messages.success(visit.request, told)
    return redirect(visit.link("changelist"))


def _read(label: str, text: str, kind: type) -> Any:
    """Return JSON of this kind.  Raises ValueError, which says what is wrong and not what is there:
    it is shown beside the form.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, kind):
        raise ValueError(f"{label}: a JSON {'list' if kind is list else 'object'}.")
    return found

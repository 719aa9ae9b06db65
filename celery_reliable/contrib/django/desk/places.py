"""The pages of what tasks are at: objects, workers; and of who did what."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import messages
from django.contrib.admin.utils import unquote
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.debug import sensitive_variables

from celery_reliable.contrib.django.desk.acting import address_of
from celery_reliable.contrib.django.desk.forms import filter_of, pages_of
from celery_reliable.contrib.django.desk.visits import Visit, shown
from celery_reliable.exceptions import ObjectIdError
from celery_reliable.operations import Object, Worker

__all__ = [
    "audit_page",
    "find_object_page",
    "object_page",
    "objects_page",
    "orders_page",
    "workers_page",
]

_LONGEST = 300
#: Tasks that are named of what one worker runs.
_MOST_RUNS = 50
_MOST_NOTES = 200


def objects_page(visit: Visit) -> HttpResponse:
    """List the objects that tasks have."""
    given = visit.request.GET
    asked = filter_of("objects", given)
    page = pages_of("objects", visit.desk, asked)
    context = {
        "title": "Objects",
        "objects": [_object(visit, one) for one in page.items],
        "next": page.cursor,
        "is_first": not given.get("cursor"),
        "find_link": visit.link("find_object"),
    }
    return visit.render("objects", context, "objects")


@sensitive_variables("object_id")
def find_object_page(visit: Visit) -> HttpResponse:
    """Lead to an object's page, by its task and its id: posted, so that it is in no address."""
    given = visit.request.POST
    name, object_id = given.get("task", "").strip(), given.get("object_id", "").strip()
    if not name:
        messages.warning(visit.request, "Give the name of the task and the object's id.")
        return redirect(visit.link("objects"))
    try:
        return redirect(visit.link("object", visit.desk.objects.key_of(name, object_id or None)))
    except ObjectIdError as exc:
        messages.warning(visit.request, shown(str(exc)))
        return redirect(visit.link("objects"))


def object_page(visit: Visit, key: str) -> HttpResponse:
    """Show who has an object, and who waits for it."""
    key = unquote(key)
    found = visit.desk.objects.get(key)
    context = {
        "title": f"Object {shown(found.object_name, _LONGEST)}",
        "object": _object(visit, found),
        "is_free": found.is_free,
        "waiters": [
            {"task_id": shown(one, _LONGEST), "link": visit.link("task", one)}
            for one in found.waiters
        ],
    }
    return visit.render("object", context, "objects")


def _object(visit: Visit, one: Object) -> dict[str, Any]:
    return {
        **shown(one, _LONGEST),
        "link": visit.link("object", one.object_key),
        "holder_link": visit.link("task", one.holders[0].task_id) if one.holders else "",
        "has_places": one.has_places,
        "holders": [
            {**shown(holder, _LONGEST), "link": visit.link("task", holder.task_id)}
            for holder in one.holders
        ],
    }


def workers_page(visit: Visit) -> HttpResponse:
    """List workers with what each runs, and since when."""
    found = visit.desk.workers.all()
    context = {"title": "Workers", "workers": [_worker(visit, one) for one in found]}
    return visit.render("workers", context, "workers")


def _worker(visit: Visit, one: Worker) -> dict[str, Any]:
    view: dict[str, Any] = shown(one, _LONGEST)
    view["runs"] = [
        {**shown(run, _LONGEST), "link": visit.link("task", run.task_id)}
        for run in one.runs[:_MOST_RUNS]
    ]
    view["more_runs"] = max(0, one.claims - _MOST_RUNS)
    view["lapsed_seconds"] = max(0.0, -one.seconds_left)
    view["suspect_link"] = visit.link("task", one.suspect) if one.suspect else ""
    return view


def audit_page(visit: Visit) -> HttpResponse:
    """List what operators did, the latest first."""
    notes = []
    for entry in visit.desk.audit(_MOST_NOTES):
        about = json.dumps(dict(entry.about), ensure_ascii=False, default=str)
        notes.append(
            {
                **shown(entry, _LONGEST),
                "about": shown(about, 1_000),
                "link": address_of(visit, entry.act, entry.about),
            }
        )
    return visit.render("audit", {"title": "Audit", "notes": notes}, "audit")


def orders_page(visit: Visit) -> HttpResponse:
    """List what is paused, struck and drained."""
    found = [shown(one, _LONGEST) for one in visit.desk.orders.all()]
    return visit.render("orders", {"title": "Orders", "orders": found}, "orders")

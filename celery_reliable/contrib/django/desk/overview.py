"""The page that says whether all is well: what waits, runs and failed, and what to do about it."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse

from celery_reliable.contrib.django.desk.visits import Visit, shown
from celery_reliable.operations import RATES, Status, Throughputs, as_json

__all__ = ["overview_page"]

_LONGEST = 300
#: Groups of dead letters, the largest.
_GROUPS = 5
_MOST_QUEUES = 100


def overview_page(visit: Visit) -> HttpResponse:
    """Show the state of everything on one screen."""
    desk = visit.desk
    status = desk.status()
    groups = desk.letter_pages.groups()
    view = shown(status, _LONGEST)
    context = {
        "title": "Desk",
        "status": view,
        "findings": [
            {
                "code": one.code,
                "name": one.name,
                "level": one.severity,
                "message": shown(one.message, 1_000),
                "hint": shown(one.hint, 1_000),
            }
            for one in status.findings
        ],
        "states": _states(visit, status),
        "queues": view["queues"][:_MOST_QUEUES],
        "more_queues": max(0, len(view["queues"]) - _MOST_QUEUES),
        "saturation": status.saturation,
        "report": {k: v for k, v in view["last_pass"]["report"].items() if v},
        "throughput": _throughput(desk.throughputs),
        "groups": [
            {
                **shown(one, _LONGEST),
                "link": visit.link("changelist", group=one.group),
            }
            for one in groups.groups[:_GROUPS]
        ],
        "more_groups": max(0, len(groups.groups) - _GROUPS),
        "links": {
            name: visit.link(name)
            for name in ("groups", "workers", "tasks", "changelist", "objects", "orders")
        },
        "find_link": visit.link("find"),
    }
    return visit.render("overview", context, "overview")


def _states(visit: Visit, status: Status) -> list[dict[str, Any]]:
    about = {
        "queued": "wait for a worker",
        "running": "run",
        "parked": "wait for their time, their object or an order's end",
        "waiting": "wait for what took their place",
        "owed": "dead letters that Celery has not been told of",
        "dead": "dead letters",
    }
    return [
        {
            "name": name,
            "about": words,
            "count": status.tasks[name],
            "link": visit.link("changelist") if name == "dead" else visit.link("tasks", state=name),
            "is_exact": status.is_exact or name in ("running", "dead"),
        }
        for name, words in about.items()
        if status.tasks.get(name)
    ]


def _throughput(found: Throughputs) -> list[dict[str, Any]]:
    """Return the last hour and the last day, in pieces.

    What goes into attributes is text: languages write numbers otherwise.
    """
    pieces = [*found.slices(10, 6), *found.slices(180, 8)]
    most = max(max(one.processed, one.lost) for one in pieces)
    rows = [
        {
            "since": as_json(one.since),
            "minutes": one.minutes,
            "cells": [(name.capitalize(), f"{getattr(one, name):g}") for name in RATES],
            "most": f"{most:g}",
        }
        for one in pieces
    ]
    return rows if most else []

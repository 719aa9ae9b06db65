"""The pages of runs: one task on several workers, who has which member, and what is missing."""

from __future__ import annotations

from typing import Any

from django.contrib.admin.utils import unquote
from django.http import HttpResponse

from celery_reliable.contrib.django.desk.visits import Visit, shown
from celery_reliable.operations import Run

__all__ = ["fleet_run_page", "fleet_runs_page"]

_LONGEST = 300
#: Members that are named on one page.
_MOST_MEMBERS = 500


def fleet_runs_page(visit: Visit) -> HttpResponse:
    """List the runs that are not over."""
    found = visit.desk.runs.all()
    context = {"title": "Runs", "runs": [_run(visit, one) for one in found]}
    return visit.render("fleet_runs", context, "tasks")


def fleet_run_page(visit: Visit, run: str) -> HttpResponse:
    """Show one run with its members."""
    run = unquote(run)
    found = visit.desk.runs.get(run)
    context: dict[str, Any] = {"title": f"Run {shown(run, _LONGEST)}", "run": None}
    if found is not None:
        members = [
            {**shown(one, _LONGEST), "link": visit.link("task", one.task_id)}
            for one in found.members[:_MOST_MEMBERS]
        ]
        more = max(0, len(found.members) - _MOST_MEMBERS)
        context |= {"run": _run(visit, found), "members": members, "more": more}
    return visit.render("fleet_run", context, "tasks")


def _run(visit: Visit, one: Run) -> dict[str, Any]:
    view: dict[str, Any] = shown(one, _LONGEST)
    view["sentence"] = shown(one.sentence, 1_000)
    return {**view, "of": len(one.members), "link": visit.link("fleet_run", one.run)}

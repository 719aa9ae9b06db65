"""Replay and discard of dead letters: asked first, then done, and noted."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from django.contrib import messages
from django.http import HttpResponse, HttpResponseBadRequest
from django.shortcuts import redirect

from celery_reliable.contrib.django.desk.kinds import ACTS, Act, counted, log
from celery_reliable.contrib.django.desk.runs import begin_page
from celery_reliable.contrib.django.desk.visits import Visit, quoted, shown
from celery_reliable.operations import Chosen

__all__ = ["act_page"]

#: More than a page has, and done within one request.
_MOST_CHOSEN = 500


def act_page(visit: Visit) -> HttpResponse:
    """Replay or discard the chosen dead letters, or all that fit: ask first, then do it."""
    given = visit.request.POST
    # Two kinds of buttons: for those that are chosen, and for all that fit.
    act = ACTS.get(given.get("all") or given.get("action", ""))
    if act is None:
        return HttpResponseBadRequest("There is no such action.")
    visit.require(act.right)
    if "all" in given:
        return begin_page(visit, act, given)
    ids = [*given.getlist("task_id"), *map(unquote, given.getlist("quoted_id"))]
    chosen = list(dict.fromkeys(ids))
    if not chosen:
        messages.warning(visit.request, "No dead letter was chosen.")
    elif len(chosen) > _MOST_CHOSEN:
        return HttpResponseBadRequest(f"At most {_MOST_CHOSEN} at once: choose by a filter.")
    elif "confirmed" not in given:
        context = {
            "title": f"{act.name.capitalize()} {counted(len(chosen))}?",
            "action": act.name,
            "about": act.about,
            "chosen": [shown(one, 300) for one in chosen],
            "quoted": [quoted(one) for one in chosen],
        }
        return visit.render("confirm", context, "changelist")
    else:
        _do(visit, act, tuple(chosen))
    return redirect(visit.link("changelist"))


def _do(visit: Visit, act: Act, ids: tuple[str, ...]) -> None:
    if len(ids) == 1:
        # Says why there is none, where there is none.
        visit.desk.letters.get(ids[0])
    how: dict[str, Any] = {"rate": None}
    reached: list[str] = []
    try:
        done = getattr(visit.desk.bulk, act.name)(
            Chosen(ids), by=visit.by, each=reached.append, **how
        )
    finally:
        for task_id in reached:
            log(visit, task_id, act.done.capitalize())
    if done.done:
        messages.success(visit.request, f"{counted(done.done)} {act.done}.")
    if done.gone:
        messages.warning(visit.request, f"{counted(done.gone)} gone already.")
    if done.problem:
        messages.warning(visit.request, shown(done.problem))
    if done.unsent:
        messages.warning(
            visit.request,
            "What could not be sent is queued all the same: the sweeper will send it.",
        )

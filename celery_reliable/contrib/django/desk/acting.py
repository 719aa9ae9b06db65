"""The page of an act: it asks, says what would become of what is meant, does it, and goes on.

A long act is done in bounded portions, one a request.  All that is known of it is in its address:
what is meant, how, and how far it has come.  So whoever closes the browser goes on by the address,
from the browser's history or from the audit.  A portion that is repeated does nothing twice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import unescape
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.template.loader import render_to_string
from django.utils.html import strip_tags

from celery_reliable.contrib.django.desk.forms import OperationForm
from celery_reliable.contrib.django.desk.visits import ACT_PAGES, OF_ADMIN, Visit, shown
from celery_reliable.contrib.django.models import DeadLetter
from celery_reliable.exceptions import ReliableError
from celery_reliable.operations import (
    FATES,
    Done,
    Operation,
    as_json,
    counted,
    editable_arguments,
)

__all__ = ["act_page"]

#: A browser and a thread of the web server wait for a portion.
_STEP_SECONDS = 2.0
#: For so long things are counted before somebody is asked.
_COUNT_SECONDS = 0.15
_LONGEST = 300


def act_page(visit: Visit, page: Any, path: Mapping[str, str]) -> HttpResponse:
    """Ask whether an act is meant; when somebody has said so, do it, or a portion of it."""
    operation = OF_ADMIN.get(path["name"])
    if operation is None:
        raise Http404(f"There is no act {path['name']!r}.")
    visit.require(*operation.needs)
    is_posted = visit.request.method == "POST"
    form = OperationForm(operation, visit.request.POST if is_posted else visit.request.GET)
    shows: dict[str, Any] = {}
    try:
        if operation.takes("args") and not is_posted and form.is_valid():
            args, kwargs = editable_arguments(visit.desk.letters.get(form.cleaned_data["id"]))
            form.put(args=json.dumps(args, indent=2), kwargs=json.dumps(kwargs, indent=2))
        if form.is_valid():
            if is_posted and "confirmed" in form.data:
                return _do(visit, operation, form)
            if operation.takes("dry_run") and not form.data.get("done"):
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
    result = _run(visit, form, _STEP_SECONDS)
    facts, limit = as_json(result), form.given.get("limit")
    about = ", ".join(text for _, text in form.meant) or "all"
    context = {"visit": visit, "operation": operation, **_told(facts)}
    outcome = render_to_string("admin/celery_reliable/outcome.html", context)
    log = " ".join(unescape(strip_tags(f"{_words(operation)}: {outcome}")).split())
    visit.admin.log_change(visit.request, DeadLetter(task_id=shown(about, 200)), log)
    is_over = not isinstance(result, Done) or result.is_whole or result.done == limit
    is_short = form.given.get("ids") and not form.data.get("done")
    if not isinstance(result, Done) or (is_over and is_short):
        tell = messages.warning if facts.get("problem") else messages.success
        tell(visit.request, outcome)
        return redirect(visit.link(ACT_PAGES[operation.name]))
    tally = form.tally
    if limit:
        total = min(tally["total"], tally["done"] + limit)
        form.put(total=total, limit=limit - result.done or "")
    form.put(**{name: tally[name] + facts[name] for name in ("done", "gone", "failed")})
    form.put(before=facts["before"], cursor=facts["cursor"])
    stops = result.unsent or (
        result.problem and not (result.done or result.failed or result.cursor)
    )
    return _render(visit, operation, form, problem=result.problem if stops else "", is_over=is_over)


def _render(
    visit: Visit,
    operation: Operation,
    form: OperationForm,
    *,
    meant: Any = None,
    problem: str = "",
    status: int = 200,
    is_possible: bool = True,
    is_over: bool = False,
) -> HttpResponse:
    facts = {} if meant is None else as_json(meant)
    if isinstance(meant, Done):
        form.put(before=facts["before"], total=meant.done)
    context = {
        "title": _title(visit, operation, form, meant),
        "operation": operation,
        **_told(facts),
        "form": form,
        "meant": shown(form.meant),
        "is_possible": is_possible,
        "is_exact": facts.get("is_whole", True),
        "is_over": is_over,
        "back": visit.link(ACT_PAGES[operation.name]),
        "problem": shown(problem, 2_000),
    }
    return visit.render("act", context, ACT_PAGES[operation.name], status)


def _told(facts: Any) -> dict[str, Any]:
    """Return a result for a template, and what became of the things that are in it."""
    found = shown(facts, _LONGEST)
    fates = [(words, found[name]) for name, words in FATES.items() if found.get(name)]
    return {"facts": found, "fates": fates}


def _title(visit: Visit, operation: Operation, form: OperationForm, meant: Any) -> str:
    if meant is None:
        return f"{_words(operation)}?"
    if operation.asks is None:
        return f"{_words(operation).split()[0]} {counted(meant.done, operation.noun)}?"
    return str(shown(operation.asks(visit.desk, form.given, meant), _LONGEST))


def _words(operation: Operation) -> str:
    return operation.name.replace("_", " ").capitalize()

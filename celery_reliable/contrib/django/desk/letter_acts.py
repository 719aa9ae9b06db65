"""Replay and discard of dead letters: asked first, then done, and noted.

What is done to all that fit is done in steps, one bounded step a request: the same operation, again
with what it returned.  All that is known of it is in its address: what is meant, how, and how far
it has come.  So whoever closes the browser goes on by the address, from the browser's history or
from the audit.  A step that is repeated does nothing twice: what was done to a letter is done, and
what was buried after the beginning is not meant.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlencode

from django import forms
from django.contrib import messages
from django.http import HttpResponse, HttpResponseBadRequest, JsonResponse
from django.shortcuts import redirect

from celery_reliable.contrib.django.desk.forms import OPERATIONS, AskForm
from celery_reliable.contrib.django.desk.visits import Visit, quoted, shown
from celery_reliable.exceptions import ReliableError
from celery_reliable.operations import (
    CannotReplay,
    Chosen,
    Done,
    Operation,
    UnknownGroup,
    as_json,
    counted,
    parse_time,
    utc,
)

__all__ = ["act_page", "address_of", "run_page"]

#: By what the buttons and the audit call them.
_ACTS = {
    "replay": OPERATIONS["replay_dead_letters"],
    "discard": OPERATIONS["discard_dead_letters"],
}
#: More than a page has, and done within one request.
_MOST_CHOSEN = 500
#: Of one step: a browser and a thread of the web server wait for it.
_STEP_SECONDS = 2.0
#: For so long letters are counted before somebody is asked, and so many of them.
_COUNT_SECONDS = 0.15
_MOST_COUNTED = 10_000
#: A cursor has the id of a task; without it a step begins at the beginning again.
_LONGEST_CURSOR = 1_500
#: How the act is done, which whoever is asked may change.
_HOW = ("rate", "limit", "to_queue", "max_waiting")
#: What a step changes.
_MOVING = ("cursor", "done", "failed", "gone", "over")
_NUMBERS = ("before", "total", "done", "failed", "gone")
_KEPT = ("act", "at_least", "cursor", "over")
#: The last moment that Python knows, in ms.
_LATEST_MS = 253_402_300_799_000


def act_page(visit: Visit) -> HttpResponse:
    """Replay or discard the chosen dead letters, or all that fit: ask first, then do it."""
    given = visit.request.POST
    # Two kinds of buttons: for those that are chosen, and for all that fit.
    act = given.get("all") or given.get("action", "")
    if act not in _ACTS:
        return HttpResponseBadRequest("There is no such action.")
    operation = _ACTS[act]
    for right in operation.needs:
        visit.require(right)
    if "all" in given:
        run = _Run(act, given)
        if not run.form.problems:
            run.count(visit)
        return run.question(visit, run.form.problems)
    chosen = list(dict.fromkeys(map(unquote, given.getlist("quoted_id"))))
    if not chosen:
        messages.warning(visit.request, "No dead letter was chosen.")
    elif len(chosen) > _MOST_CHOSEN:
        return HttpResponseBadRequest(f"At most {_MOST_CHOSEN} at once: choose by a filter.")
    elif "confirmed" not in given:
        context = {
            "title": _question(visit, operation, Done("", None, done=len(chosen))),
            "hidden": {"action": act},
            "groups": [("", [shown(one, 300) for one in chosen])],
            "quoted": [quoted(one) for one in chosen],
            "yes": f"Yes, {act}",
            "is_danger": act == "discard",
            "back": visit.link("changelist"),
        }
        return visit.render("confirm", context, "changelist")
    else:
        _do(visit, act, tuple(chosen))
    return redirect(visit.link("changelist"))


def _question(visit: Visit, operation: Operation, meant: Done) -> str:
    assert operation.asks is not None
    return operation.asks(None, {}, meant)


def _do(visit: Visit, act: str, ids: tuple[str, ...]) -> None:
    operation = _ACTS[act]
    if len(ids) == 1:
        # Says why there is none, where there is none.
        visit.desk.letters.get(ids[0])
    reached: list[str] = []
    do = visit.desk.bulk.replay if act == "replay" else visit.desk.bulk.discard
    try:
        done = do(Chosen(ids), by=visit.by, rate=None, each=reached.append)
    finally:
        for task_id in reached:
            visit.log(task_id, operation.verb.capitalize())
    if done.done:
        messages.success(visit.request, f"{counted(done.done, operation.noun)} {operation.verb}.")
    if done.gone:
        messages.warning(visit.request, f"{counted(done.gone, operation.noun)} gone already.")
    if done.problem:
        messages.warning(visit.request, shown(done.problem))
    if done.unsent:
        messages.warning(
            visit.request,
            "What could not be sent is queued all the same: the sweeper will send it.",
        )


def _number() -> forms.IntegerField:
    return forms.IntegerField(min_value=0, max_value=_LATEST_MS, required=False)


class _Run:
    """An act on all that fit: its form has what is meant, how, and how far it has come."""

    def __init__(self, act: str, given: Mapping[str, Any]) -> None:
        self.act = act
        self.operation = _ACTS[act]
        declared = {one.name: one for one in self.operation.parameters}
        filled = dict(given.items())
        if not filled.get("rate") and declared["rate"].default is not None:
            filled["rate"] = f"{declared['rate'].default:g}"
        self.form = AskForm(
            [declared[name] for name in ("filter", "group", *_HOW) if name in declared],
            filled,
            {
                **{name: _number() for name in _NUMBERS},
                **{name: forms.CharField(required=False) for name in _KEPT},
            },
        )
        #: The same as an address or a form has it; a step changes it.
        self.values = {**self.form.values, "act": act}

    def number(self, name: str) -> int:
        """Return a number of the form; 0 where it is not given."""
        return int(self.values.get(name) or 0)

    @property
    def expected(self) -> int:
        """How many it will be at the most, as far as is known."""
        return min(self.number("total"), self.number("limit") or self.number("total"))

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do."""
        return "over" in self.values

    @property
    def said(self) -> list[tuple[str, str]]:
        """What is meant, in words."""
        return self.form.said(without=_HOW) or [("Which", "all dead letters")]

    def parameters(self, **more: Any) -> dict[str, Any]:
        """Return the parameters of the operation's next step."""
        wanted, asked = self.form.filter, self.form.asked
        before, group = self.number("before"), asked.get("group", "")
        how = {name: asked[name] for name in _HOW if name in asked}
        return {
            **how,
            "filter": wanted,
            "group": group,
            "all": not (wanted.given or group),
            "before": utc(before) if before else None,
            "cursor": self.values.get("cursor", ""),
            **more,
        }

    def count(self, visit: Visit) -> None:
        """Count what is meant from now on."""
        given = self.parameters(dry_run=True, limit=_MOST_COUNTED, seconds=_COUNT_SECONDS)
        meant: Done = self.operation.run(visit.desk, given, by=visit.by)
        self.values |= {"before": str(meant.before_ms), "total": str(meant.done)}
        if not meant.is_whole:
            self.values["at_least"] = "1"

    def step(self, visit: Visit) -> str:
        """Do some of it; return what is in the way of going on at once."""
        limit = self.number("limit")
        left = max(0, limit - self.number("done")) if limit else None
        if self.is_over or left == 0:
            self.values["over"] = "1"
            return ""
        given = self.parameters(limit=left, seconds=_STEP_SECONDS)
        try:
            done: Done = self.operation.run(visit.desk, given, by=visit.by)
        except UnknownGroup:
            # Nothing is left of it.
            self.values["over"] = "1"
            return ""
        if done.done:
            about = ", ".join(f"{name}: {value}" for name, value in self.said)
            visit.log(about, f"{counted(done.done, self.operation.noun)} {self.operation.verb}")
        for name in ("done", "failed", "gone"):
            self.values[name] = str(self.number(name) + getattr(done, name))
        self.values["before"] = str(done.before_ms)
        self.values["cursor"] = done.cursor if len(done.cursor) < _LONGEST_CURSOR else ""
        if done.is_whole or (limit and self.number("done") >= limit):
            self.values["over"] = "1"
        stops = done.unsent or (done.problem and not (done.done or done.failed or done.cursor))
        return shown(done.problem, 1_000) if stops else ""

    def address(self, visit: Visit, **more: str) -> str:
        """Return where it goes on."""
        return f"{visit.link('run')}?{urlencode({**self.values, **more})}"

    def question(self, visit: Visit, problems: list[str]) -> HttpResponse:
        """Ask whether all that fit are meant, and how it is to be done."""
        is_exact = "at_least" not in self.values
        meant = Done("", None, done=self.number("total"), is_whole=is_exact)
        context = {
            "title": _question(visit, self.operation, meant),
            "act": self.act,
            "about": self.operation.about.partition("\n\n")[0],
            "said": self.said,
            "total": meant.done,
            "is_exact": is_exact,
            "how": [self.form[name] for name in _HOW if name in self.form.fields],
            "fields": {
                name: value for name, value in self.values.items() if name not in (*_HOW, "done")
            },
            "action": visit.link("run"),
            "back": visit.link("changelist"),
            "problem": " ".join(problems),
        }
        return visit.render("begin", context, "changelist", 400 if problems else 200)

    def page(self, visit: Visit) -> HttpResponse:
        """Show how far it has come."""
        context = {
            "title": f"{self.act.capitalize()} dead letters",
            "run": self,
            "verb": self.operation.verb,
            "counts": {name: self.number(name) for name in ("done", "gone", "failed")},
            "is_exact": "at_least" not in self.values,
            "said": [
                *self.said,
                *(
                    (self.form.label(name), self.values[name])
                    for name in _HOW
                    if name in self.values
                ),
            ],
            "before": as_json(utc(self.number("before"))),
            "fields": {**dict.fromkeys(_MOVING, ""), **self.values},
            "action": visit.link("run"),
            "goes": visit.request.GET.get("go") == "1" and not self.is_over,
            "back": visit.link("changelist"),
            "audit_link": visit.link("audit"),
        }
        return visit.render("run", context, "changelist")


def run_page(visit: Visit) -> HttpResponse:
    """Show how far an act has come; when it is posted, do a step of it."""
    request = visit.request
    given = request.POST if request.method == "POST" else request.GET
    if given.get("act") not in _ACTS:
        return HttpResponseBadRequest("There is no such act.")
    run = _Run(given["act"], given)
    for right in run.operation.needs:
        visit.require(right)
    if run.form.problems or not run.number("before"):
        return run.question(visit, run.form.problems or ["When it began is not said: begin anew."])
    if request.method != "POST":
        return run.page(visit)
    is_program = "application/json" in request.headers.get("Accept", "")
    try:
        problem = run.step(visit)
    except CannotReplay as exc:
        return run.question(visit, [shown(str(exc))])
    except ReliableError as exc:
        if not is_program:
            raise
        return JsonResponse({"problem": shown(str(exc))}, status=503)
    if is_program:
        counts = {name: run.number(name) for name in ("done", "failed", "gone")}
        fields = {name: run.values.get(name, "") for name in _MOVING}
        told = {"over": run.is_over, "fields": fields, "address": run.address(visit)}
        return JsonResponse({**counts, **told, "problem": problem})
    if problem:
        messages.warning(request, problem)
    # Only by a button: who opens the address later does nothing by that.
    goes = given.get("go") and not problem and not run.is_over
    return redirect(run.address(visit, **({"go": "1"} if goes else {})))


def address_of(visit: Visit, act: str, about: Mapping[str, Any]) -> str:
    """Return where an act of the audit goes on; empty for one of single letters, by what no form
    has, or that who asks may not do.
    """
    wanted, before = about.get("filter") or {}, about.get("before")
    if act not in _ACTS or not before or "ids" in about or "object_id" in wanted:
        return ""
    if not all(map(visit.may, _ACTS[act].needs)):
        return ""
    try:
        begun = parse_time(str(before))
    except ValueError:
        return ""
    given = {name.removesuffix("_seconds"): value for name, value in wanted.items()}
    given |= {name: about.get(name) for name in ("group", *_HOW)}
    typed = {
        name: f"{value:g}" if isinstance(value, float) else str(value)
        for name, value in given.items()
        if value not in (None, "")
    }
    run = _Run(act, typed)
    run.values["before"] = str(begun)
    return run.address(visit)

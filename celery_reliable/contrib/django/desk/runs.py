"""A long act on dead letters, one bounded step a request.

All that is known of it is in its address: what is meant, how, and how far it has come.  So whoever
closes the browser goes on by the address, from the browser's history or from the audit.  A step
that is repeated does nothing twice: what was done to a letter is done, and what was buried after
the beginning is not meant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpResponse, HttpResponseBadRequest, JsonResponse
from django.shortcuts import redirect

from celery_reliable.contrib.django.desk.asking import LETTERS, Asked
from celery_reliable.contrib.django.desk.kinds import ACTS, Act, counted, log
from celery_reliable.contrib.django.desk.visits import Visit, shown
from celery_reliable.exceptions import ReliableError
from celery_reliable.operations import (
    DEFAULT_RATE,
    CannotReplay,
    Chosen,
    Done,
    UnknownGroup,
    as_json,
    parse_time,
    utc,
)

__all__ = ["Run", "address_of", "begin_page", "run_page"]

#: Of one step: a browser and a thread of the web server wait for it.
_STEP_SECONDS = 2.0
#: For so long letters are counted before somebody is asked, and so many of them.
_COUNT_SECONDS = 0.15
_MOST_COUNTED = 10_000
_MOST = 10**9
#: A cursor has the id of a task; without it a step begins at the beginning again.
_LONGEST_CURSOR = 1_500


@dataclass(frozen=True)
class Run:
    """An act: what is meant, how, and how far it has come."""

    act: Act
    asked: Asked
    rate: float | None
    #: At most so many are to be done.
    most: int | None
    to_queue: str
    #: Only while fewer messages wait in a letter's queue.
    max_waiting: int | None
    before_ms: int
    #: How many were meant when it began, or that many and more.
    total: int
    is_exact: bool
    cursor: str
    done: int
    failed: int
    gone: int
    is_over: bool
    problems: tuple[str, ...] = ()

    @classmethod
    def of(cls, act: Act, given: Mapping[str, str]) -> Run:
        """Return what an address or a form says; what makes no sense in it is in `problems`."""
        asked = Asked(given, LETTERS, ("group",))
        read = _Numbers(given)
        found = cls(
            act,
            asked,
            rate=read.rate(DEFAULT_RATE if act.name == "replay" else None),
            most=read.number("limit", least=1) or None,
            to_queue=given.get("to_queue", "").strip()[:255] if act.name == "replay" else "",
            max_waiting=(
                read.number("max_waiting", least=1) or None if act.name == "replay" else None
            ),
            before_ms=read.number("before"),
            total=read.number("total"),
            is_exact=not given.get("at_least"),
            cursor=given.get("cursor", "")[:_LONGEST_CURSOR],
            done=read.number("done"),
            failed=read.number("failed"),
            gone=read.number("gone"),
            is_over=bool(given.get("over")),
        )
        return replace(found, problems=(*asked.problems, *read.problems))

    @property
    def chosen(self) -> Chosen:
        """The letters that are meant and were not looked at."""
        return Chosen(
            group=self.asked.values.get("group", ""),
            wanted=self.asked.filter,
            before_ms=self.before_ms or None,
            cursor=self.cursor,
        )

    @property
    def fields(self) -> dict[str, str]:
        """The same as an address or a form has it."""
        found = {
            "act": self.act.name,
            **self.asked.values,
            "rate": f"{self.rate:g}" if self.rate is not None else "",
            "limit": str(self.most or ""),
            "to_queue": self.to_queue,
            "max_waiting": str(self.max_waiting or ""),
            "before": str(self.before_ms or ""),
            "total": str(self.total or ""),
            "at_least": "" if self.is_exact else "1",
            "cursor": self.cursor if len(self.cursor) < _LONGEST_CURSOR else "",
            "done": str(self.done),
            "failed": str(self.failed),
            "gone": str(self.gone),
            "over": "1" if self.is_over else "",
        }
        return {name: value for name, value in found.items() if value}

    @property
    def expected(self) -> int:
        """How many it will be at the most, as far as is known."""
        return min(self.total, self.most) if self.most else self.total

    def after(self, done: Done) -> Run:
        """Return it after a step."""
        return replace(
            self,
            done=self.done + done.done,
            failed=self.failed + done.failed,
            gone=self.gone + done.gone,
            before_ms=done.before_ms,
            cursor=done.cursor,
            is_over=done.is_whole or self.done + done.done >= (self.most or _MOST),
        )


class _Numbers:
    """Reads numbers of a form; what are none is told."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given
        self.problems: list[str] = []

    def number(self, name: str, least: int = 0) -> int:
        """Return a whole number; 0 where none is given."""
        text = self._given.get(name, "").strip()
        if not text:
            return 0
        if text.isascii() and text.isdecimal() and len(text) < 16 and int(text) >= least:
            return int(text)
        title = name.replace("_", " ").capitalize()
        self.problems.append(f"{title}: a whole number from {least} on.")
        return 0

    def rate(self, default: float | None) -> float | None:
        """Return how many a second."""
        text = self._given.get("rate", "").strip()
        if not text:
            return default
        try:
            found = float(text)
        except ValueError:
            found = 0.0
        if not 0.2 <= found <= 100_000:
            self.problems.append("Rate: a number from 0.2 on.")
            return default
        return found


def begin_page(visit: Visit, act: Act, given: Mapping[str, str]) -> HttpResponse:
    """Ask whether all that fit are meant, and say how many those are."""
    run = Run.of(act, given)
    if not run.problems:
        counts = visit.desk.bulk.count(run.chosen, limit=_MOST_COUNTED, seconds=_COUNT_SECONDS)
        run = replace(run, before_ms=counts.before_ms, total=counts.done, is_exact=counts.is_whole)
    return _ask(visit, run, run.problems)


def _ask(visit: Visit, run: Run, problems: tuple[str, ...]) -> HttpResponse:
    fields = run.fields
    number = f"{'' if run.is_exact else 'at least '}{run.total:,}".replace(",", " ")
    noun = "dead letter" if run.total == 1 else "dead letters"
    context = {
        "title": f"{run.act.name.capitalize()} {number} {noun}?",
        "act": run.act.name,
        "about": run.act.about,
        "said": run.asked.said,
        "total": run.total,
        "is_exact": run.is_exact,
        "rate": fields.pop("rate", ""),
        "limit": fields.pop("limit", ""),
        "to_queue": fields.pop("to_queue", ""),
        "max_waiting": fields.pop("max_waiting", ""),
        "has_queue": run.act.name == "replay",
        "fields": [(name, value) for name, value in fields.items() if name != "done"],
        "action": visit.link("run"),
        "back": f"{visit.link('changelist')}?{run.asked.query()}",
        "problem": " ".join(problems),
    }
    return visit.render("begin", context, "changelist", 400 if problems else 200)


def run_page(visit: Visit) -> HttpResponse:
    """Show how far an act has come; when it is posted, do a step of it."""
    request = visit.request
    given = request.POST if request.method == "POST" else request.GET
    act = ACTS.get(given.get("act", ""))
    if act is None:
        return HttpResponseBadRequest("There is no such act.")
    visit.require(act.right)
    run = Run.of(act, given)
    if run.problems or not run.before_ms:
        problems = run.problems or ("When it began is not said: begin anew.",)
        return _ask(visit, run, problems)
    if request.method != "POST":
        return _shown(visit, run)
    is_program = "application/json" in request.headers.get("Accept", "")
    try:
        run, problem = _step(visit, run)
    except CannotReplay as exc:
        return _ask(visit, run, (shown(str(exc)),))
    except ReliableError as exc:
        if not is_program:
            raise
        return JsonResponse({"problem": shown(str(exc))}, status=503)
    if is_program:
        return JsonResponse({**_facts(visit, run), "problem": problem})
    if problem:
        messages.warning(request, problem)
    # Only by a button: who opens the address later does nothing by that.
    go = {"go": "1"} if given.get("go") and not problem and not run.is_over else {}
    return redirect(f"{visit.link('run')}?{urlencode({**run.fields, **go})}")


def _step(visit: Visit, run: Run) -> tuple[Run, str]:
    """Do some of it; return it then, and what is in the way of going on at once."""
    if run.is_over:
        return run, ""
    how: dict[str, Any] = {}
    if run.act.name == "replay":
        how = {"to_queue": run.to_queue, "max_waiting": run.max_waiting}
    left = None if run.most is None else max(0, run.most - run.done)
    if left == 0:
        return replace(run, is_over=True), ""
    try:
        done = getattr(visit.desk.bulk, run.act.name)(
            run.chosen, by=visit.by, rate=run.rate, limit=left, seconds=_STEP_SECONDS, **how
        )
    except UnknownGroup:
        # Nothing is left of it.
        return replace(run, is_over=True), ""
    if done.done:
        about = ", ".join(f"{name}: {value}" for name, value in run.asked.said) or "all"
        log(visit, about, f"{run.act.done.capitalize()} {counted(done.done)}")
    stops = done.unsent or (done.problem and not (done.done or done.failed or done.cursor))
    return run.after(done), shown(done.problem, 1_000) if stops else ""


def _facts(visit: Visit, run: Run) -> dict[str, Any]:
    """Return what a step changes on the page."""
    fields = run.fields
    return {
        "done": run.done,
        "failed": run.failed,
        "gone": run.gone,
        "over": run.is_over,
        "fields": {name: fields.get(name, "") for name in _MOVING},
        "address": f"{visit.link('run')}?{urlencode(fields)}",
    }


#: The fields of the form that a step changes.
_MOVING = ("cursor", "done", "failed", "gone", "over")


def _shown(visit: Visit, run: Run) -> HttpResponse:
    fields = {**dict.fromkeys(_MOVING, ""), **run.fields}
    context = {
        "title": f"{run.act.name.capitalize()} dead letters",
        "run": run,
        "act": run.act,
        "said": run.asked.said,
        "before": as_json(utc(run.before_ms)),
        "fields": list(fields.items()),
        "action": visit.link("run"),
        "goes": visit.request.GET.get("go") == "1" and not run.is_over,
        "back": f"{visit.link('changelist')}?{run.asked.query()}",
        "audit_link": visit.link("audit"),
    }
    return visit.render("run", context, "changelist")


def address_of(visit: Visit, act: str, about: Mapping[str, Any]) -> str:
    """Return where an act of the audit goes on; empty for one of single letters, or by what no form
    has.
    """
    wanted, before = about.get("filter") or {}, about.get("before")
    if act not in ACTS or not before or "ids" in about or "object_id" in wanted:
        return ""
    inputs = {name.removesuffix("_seconds"): str(value) for name, value in wanted.items()}
    try:
        begun = parse_time(str(before))
    except ValueError:
        return ""
    given = {"act": act, **inputs, "group": str(about.get("group") or ""), "before": str(begun)}
    for name in ("rate", "limit", "to_queue", "max_waiting"):
        given[name] = str(about.get(name) or "")
    return f"{visit.link('run')}?{urlencode({k: v for k, v in given.items() if v})}"

"""What operators have paused, struck and drained: who, why, until when; and the buttons for it."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpResponse, HttpResponseBadRequest
from django.shortcuts import redirect

from celery_reliable.contrib.django.desk.kinds import log
from celery_reliable.contrib.django.desk.visits import Visit, shown
from celery_reliable.operations import BadOrder, OrderKind, parse_age, span

__all__ = ["order_page", "orders_page", "resume_page"]

_LONGEST = 500
_KINDS = (
    ("pause", "Pause a queue", "Nobody takes from it; what was fetched and not begun goes back."),
    ("strike", "Strike a task", "No attempt of it begins; what would begin is parked."),
    ("drain", "Drain a worker", "It finishes what it runs, and takes nothing new."),
)


def orders_page(visit: Visit) -> HttpResponse:
    """List the orders, with a form to give one."""
    context = {
        "title": "Orders",
        "orders": [shown(one, _LONGEST) for one in visit.desk.orders.all()],
        "kinds": _KINDS,
        "order_link": visit.link("order"),
        "resume_link": visit.link("resume"),
        **{name: shown(visit.request.GET.get(name, ""), _LONGEST) for name in ("kind", "target")},
    }
    return visit.render("orders", context, "orders")


def order_page(visit: Visit) -> HttpResponse:
    """Pause, strike or drain: ask first, then do it."""
    given = visit.request.POST
    kinds = {name: (what, about) for name, what, about in _KINDS}
    kind = given.get("kind", "")
    if not kind:
        messages.warning(visit.request, "Nothing was chosen.")
        return redirect(visit.link("orders"))
    if kind not in kinds:
        return HttpResponseBadRequest("Pause, strike or drain.")
    target, seconds = given.get("target", "").strip(), given.get("for_seconds", "").strip()
    asked: dict[str, Any] = {
        "object_id": given.get("object_id", "").strip() or None,
        "why": given.get("why", "").strip(),
        "later": bool(given.get("later")),
    }
    stop = bool(given.get("stop"))
    try:
        asked["for_seconds"] = _duration(seconds) if seconds else None
        visit.desk.orders.check(OrderKind(kind), target, **asked)
        if "confirmed" not in given:
            # As it was typed: a template would write a number as the reader's language has it.
            said = {"kind": kind, "target": target, "stop": stop, "for_seconds": seconds}
            return _ask(visit, kinds[kind], {**asked, **said}, asked["for_seconds"])
        view = visit.desk.orders.give(OrderKind(kind), target, by=visit.by, stop=stop, **asked)
    except BadOrder as exc:
        messages.warning(visit.request, shown(str(exc), _LONGEST))
        return redirect(visit.link("orders", kind=kind, target=target[:_LONGEST]))
    log(visit, f"{kind} {view.target}", "Gave the order")
    messages.success(visit.request, f"Order {view.id} holds.")
    for note in view.notes:
        messages.warning(visit.request, shown(note, _LONGEST))
    return redirect(visit.link("orders"))


def _ask(
    visit: Visit, words: tuple[str, str], given: dict[str, Any], seconds: float | None
) -> HttpResponse:
    what, about = words
    context = {
        "title": f"{what}: {shown(given['target'], _LONGEST)}?",
        "about": about,
        "given": given,
        "lasting": span(seconds) if seconds else "",
        "action": visit.link("order"),
        "back": visit.link("orders"),
    }
    return visit.render("order", context, "orders")


def _duration(given: str) -> float:
    try:
        return parse_age(given)
    except ValueError as exc:
        raise BadOrder(str(exc)) from None


def resume_page(visit: Visit) -> HttpResponse:
    """End an order: ask first, then do it."""
    which = visit.request.POST.get("order", "")
    if "confirmed" not in visit.request.POST:
        found = [one for one in visit.desk.orders.all() if one.id == which]
        if found:
            context = {
                "title": "End the order?",
                "order": shown(found[0], _LONGEST),
                "action": visit.link("resume"),
                "back": visit.link("orders"),
            }
            return visit.render("resume", context, "orders")
    try:
        for order in visit.desk.orders.resume(which, by=visit.by):
            log(visit, f"{order.kind.value} {order.target}", "Ended the order")
            messages.success(
                visit.request, shown(f"Order {order.id} has ended: {order.target} goes on.")
            )
    except BadOrder as exc:
        messages.warning(visit.request, shown(str(exc), _LONGEST))
    return redirect(visit.link("orders"))

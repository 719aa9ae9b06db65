"""What operators have paused, struck and drained: who, why, until when; and the buttons for it."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpResponse, HttpResponseBadRequest
from django.shortcuts import redirect

from celery_reliable.contrib.django.desk.visits import Visit, shown
from celery_reliable.operations import BadOrder, OrderKind, counted, parse_age, span

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
    given = {name: value.strip() for name, value in visit.request.POST.items()}
    kinds = {name: (what, about) for name, what, about in _KINDS}
    kind, target = given.get("kind", ""), given.get("target", "")
    if not kind:
        messages.warning(visit.request, "Nothing was chosen.")
        return redirect(visit.link("orders"))
    if kind not in kinds:
        return HttpResponseBadRequest("Pause, strike or drain.")
    asked: dict[str, Any] = {
        "object_id": given.get("object_id") or None,
        "why": given.get("why", ""),
        "later": bool(given.get("later")),
    }
    stop = bool(given.get("stop"))
    try:
        asked["for_seconds"] = seconds = _duration(given.get("for_seconds", ""))
        visit.desk.orders.check(OrderKind(kind), target, **asked)
        if "confirmed" not in given:
            what, about = kinds[kind]
            if asked["object_id"]:
                about += f" Only what is about the object {asked['object_id']}."
            about += f" For {span(seconds)}." if seconds else " Until it is resumed."
            about += (
                " What runs is stopped, too, where the pool can, and runs again later."
                if stop
                else " What runs may finish."
            )
            names = ("kind", "target", "object_id", "why", "later", "stop", "for_seconds")
            context = {
                "title": f"{what}: {shown(target, _LONGEST)}?",
                "about": shown(f"{about} Nothing is lost."),
                "hidden": {name: given[name] for name in names if given.get(name)},
                "yes": "Yes, do it",
                "action": visit.link("order"),
                "back": visit.link("orders"),
            }
            return visit.render("confirm", context, "orders")
        view = visit.desk.orders.give(OrderKind(kind), target, by=visit.by, stop=stop, **asked)
    except BadOrder as exc:
        messages.warning(visit.request, shown(str(exc), _LONGEST))
        return redirect(visit.link("orders", kind=kind, target=target[:_LONGEST]))
    visit.log(f"{kind} {view.target}", "Gave the order")
    messages.success(visit.request, f"Order {view.id} holds.")
    for note in view.notes:
        messages.warning(visit.request, shown(note, _LONGEST))
    return redirect(visit.link("orders"))


def _duration(given: str) -> float | None:
    try:
        return parse_age(given) if given else None
    except ValueError as exc:
        raise BadOrder(str(exc)) from None


def resume_page(visit: Visit) -> HttpResponse:
    """End an order: ask first, then do it."""
    which = visit.request.POST.get("order", "")
    found = [one for one in visit.desk.orders.all() if one.id == which]
    if found and "confirmed" not in visit.request.POST:
        order = found[0]
        about = f"{order.kind.value} {order.target}, by {order.by}"
        about += f": {order.why}." if order.why else "."
        if order.parked:
            waits = counted(order.parked, "task")
            about += f" For it waits: {waits}, which come back in the order of publication."
        context = {
            "title": "End the order?",
            "about": shown(about, 2 * _LONGEST),
            "hidden": {"order": order.id},
            "yes": "Yes, resume",
            "action": visit.link("resume"),
            "back": visit.link("orders"),
        }
        return visit.render("confirm", context, "orders")
    try:
        for order in visit.desk.orders.resume(which, by=visit.by):
            visit.log(f"{order.kind.value} {order.target}", "Ended the order")
            messages.success(
                visit.request, shown(f"Order {order.id} has ended: {order.target} goes on.")
            )
    except BadOrder as exc:
        messages.warning(visit.request, shown(str(exc), _LONGEST))
    return redirect(visit.link("orders"))

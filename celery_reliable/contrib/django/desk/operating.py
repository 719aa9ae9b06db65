"""What is done to tasks that live, and to what looks after them: asked first, done, and noted."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from django.contrib import messages
from django.http import HttpResponse, HttpResponseBadRequest
from django.shortcuts import redirect

from celery_reliable.contrib.django.desk.kinds import log
from celery_reliable.contrib.django.desk.visits import Visit, quoted, shown
from celery_reliable.operations import CannotMove, IfRunning, Moved, Revoked

__all__ = ["move_page", "revoke_page", "sweep_page"]

#: More than a page has, and done within one request.
_MOST_CHOSEN = 100
_LONGEST = 300
_LONGEST_SAID = 2_000


def revoke_page(visit: Visit) -> HttpResponse:
    """End the chosen tasks: say what would become of each, ask, then do it."""
    given = visit.request.POST
    chosen = tuple(dict.fromkeys(map(unquote, given.getlist("quoted_id"))))
    if not chosen:
        messages.warning(visit.request, "No task was chosen.")
        return redirect(visit.link("tasks"))
    if len(chosen) > _MOST_CHOSEN:
        return HttpResponseBadRequest(f"At most {_MOST_CHOSEN} at once.")
    try:
        if_running = IfRunning(given.get("if_running", IfRunning.STOP.value))
    except ValueError:
        return HttpResponseBadRequest("What runs is to stop, to be killed, or to finish.")
    if "confirmed" not in given:
        return _ask(visit, chosen)
    found = visit.desk.revocations.revoke(chosen, by=visit.by, if_running=if_running)
    for task_id in (*found.ended, *found.running):
        log(visit, task_id, "Revoked")
    _tell(visit, found)
    page = visit.link("task", chosen[0]) if len(chosen) == 1 else visit.link("tasks")
    return redirect(page)


def _ask(visit: Visit, chosen: tuple[str, ...]) -> HttpResponse:
    meant = visit.desk.revocations.revoke(chosen, by=visit.by, dry_run=True)
    groups = (
        ("Nobody runs these, and nobody will", meant.ended),
        ("These run", meant.running),
        ("These are dead letters, and stay", meant.dead),
        ("These replaced themselves by a canvas, and stay: revoke its members", meant.replaced),
        ("These are not known (any more)", meant.gone),
    )
    context = {
        "title": f"Revoke {_counted(meant.done)}?",
        "groups": [(name, [shown(one, _LONGEST) for one in ids]) for name, ids in groups if ids],
        "quoted": [quoted(one) for one in (*meant.ended, *meant.running)],
        "runs": bool(meant.running),
        "action": visit.link("revoke"),
        "back": visit.link("tasks"),
    }
    return visit.render("revoke", context, "tasks")


def _tell(visit: Visit, found: Revoked) -> None:
    request = visit.request
    if found.done:
        messages.success(request, f"{_counted(found.done)} revoked.")
    if found.running:
        told = "may finish" if found.if_running is IfRunning.FINISH else "told to stop"
        messages.info(request, f"Running, and {told}: {len(found.running)}.")
    if found.failed:
        messages.warning(request, f"{_counted(found.failed)} could not be revoked.")
    if found.gone:
        messages.warning(request, f"{_counted(len(found.gone))} gone already.")


def move_page(visit: Visit) -> HttpResponse:
    """Say which workers may run a task that lives: what would become of it, ask, then do it."""
    given = visit.request.POST
    chosen = tuple(dict.fromkeys(map(unquote, given.getlist("quoted_id"))))
    if not chosen:
        messages.warning(visit.request, "No task was chosen.")
        return redirect(visit.link("tasks"))
    if len(chosen) > _MOST_CHOSEN:
        return HttpResponseBadRequest(f"At most {_MOST_CHOSEN} at once.")
    back = visit.link("task", chosen[0]) if len(chosen) == 1 else visit.link("tasks")
    workers = [] if "anywhere" in given else _names(given.get("workers", ""))
    if not workers and "anywhere" not in given:
        messages.warning(visit.request, "No worker was named.")
        return redirect(back)
    prefer = _names(given.get("prefer", ""))
    is_asked = "confirmed" not in given
    try:
        found = visit.desk.moves.move(chosen, workers, by=visit.by, prefer=prefer, dry_run=is_asked)
    except CannotMove as exc:
        messages.warning(visit.request, shown(str(exc), _LONGEST_SAID))
        return redirect(back)
    if is_asked:
        return _ask_to_move(visit, found, {"workers": workers, "prefer": prefer}, back)
    for task_id in (*found.sent, *found.stopped, *found.stays):
        log(visit, task_id, "Moved")
    for level, said, ids in (
        (messages.SUCCESS, "sent to a worker that may run it, or waiting for one", found.sent),
        (messages.SUCCESS, "told to stop, to run elsewhere", found.stopped),
        (messages.INFO, "running on such a worker already", found.stays),
        (messages.WARNING, "not to be moved", found.refused),
        (messages.WARNING, "gone already", found.gone),
    ):
        if ids:
            messages.add_message(visit.request, level, f"{_counted(len(ids))}: {said}.")
    return redirect(back)


def _ask_to_move(visit: Visit, meant: Moved, named: dict[str, Any], back: str) -> HttpResponse:
    groups = (
        ("Nobody runs these: they go to such a worker, or wait for one", meant.sent),
        ("These are stopped where they run, and run elsewhere; it is no loss", meant.stopped),
        ("These run on such a worker, and go on", meant.stays),
        ("These are dead letters, or a canvas took their place: they stay", meant.refused),
        ("These are not known (any more)", meant.gone),
    )
    context = {
        "title": f"Move {_counted(meant.done)}?",
        "groups": [(name, [shown(one, _LONGEST) for one in ids]) for name, ids in groups if ids],
        "quoted": [quoted(one) for one in (*meant.sent, *meant.stopped, *meant.stays)],
        "named": named,
        "action": visit.link("move"),
        "back": back,
    }
    return visit.render("move", context, "tasks")


def _names(given: str) -> list[str]:
    return given.replace(",", " ").split()


def sweep_page(visit: Visit) -> HttpResponse:
    """Run a pass of the sweeper, unless one has just finished."""
    report = visit.desk.sweep(visit.by, most_passes=1)
    if report is None:
        messages.info(visit.request, "A pass runs, or has just finished: none was needed.")
    else:
        log(visit, "a pass of the sweeper", "Ran it")
        done = report.done()
        said = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in done.items())
        messages.success(visit.request, f"A pass was run: {said or 'nothing was overdue'}.")
    return redirect(visit.link("overview"))


def _counted(number: int) -> str:
    return f"{number} task{'' if number == 1 else 's'}"

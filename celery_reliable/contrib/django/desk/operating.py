"""What is done to tasks that live, and to what looks after them: asked first, done, and noted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import unquote

from django.contrib import messages
from django.http import HttpResponse, HttpResponseBadRequest
from django.shortcuts import redirect

from celery_reliable.contrib.django.desk.forms import OPERATIONS
from celery_reliable.contrib.django.desk.visits import Visit, quoted, shown
from celery_reliable.operations import CannotMove, IfRunning, Moved, Revoked, counted

__all__ = ["move_page", "revoke_page", "sweep_page"]

#: More than a page has, and done within one request.
_MOST_CHOSEN = 100
_LONGEST = 300
_LONGEST_SAID = 2_000
#: What becomes of what runs, by the values of `IfRunning`.
_IF_RUNNING = {
    "stop": "is asked to stop (SIGTERM)",
    "kill": "is killed (SIGKILL)",
    "finish": "may finish, and is not tried again",
}
#: What is said of the tasks of each field of what is returned: before it is done, and after.
_REVOKED: dict[str, tuple[str, str]] = {
    "ended": ("Nobody runs these, and nobody will", "revoked"),
    "running": ("These run", "revoked as they ran"),
    "dead": ("These are dead letters, and stay", "not revoked: dead letters"),
    "replaced": (
        "These replaced themselves by a canvas, and stay: revoke its members",
        "not revoked: a canvas took their place",
    ),
    "gone": ("These are not known (any more)", "gone already"),
}
_MOVED: dict[str, tuple[str, str]] = {
    "sent": (
        "Nobody runs these: they go to such a worker, or wait for one",
        "sent to a worker that may run it, or waiting for one",
    ),
    "stopped": (
        "These are stopped where they run, and run elsewhere; it is no loss",
        "told to stop, to run elsewhere",
    ),
    "stays": ("These run on such a worker, and go on", "running on such a worker already"),
    "refused": (
        "These are dead letters, or a canvas took their place: they stay",
        "not to be moved",
    ),
    "gone": ("These are not known (any more)", "gone already"),
}
_NOT_DONE = frozenset({"dead", "replaced", "refused", "gone"})


def revoke_page(visit: Visit) -> HttpResponse:
    """End the chosen tasks: say what would become of each, ask, then do it."""
    how = visit.request.POST.get("if_running", "stop")
    if how not in _IF_RUNNING:
        return HttpResponseBadRequest("What runs is to stop, to be killed, or to finish.")

    def ask(meant: Revoked) -> dict[str, Any]:
        about = "A revoked task ends as REVOKED and never runs again."
        if meant.running:
            about += " A pool of threads, and a solo one, cannot stop what runs: it finishes."
        choice = ("if_running", "What runs when it is revoked", _IF_RUNNING)
        return {"about": about, "choice": choice, "yes": "Yes, revoke", "is_danger": True}

    return _act(visit, "revoke_tasks", {"if_running": IfRunning(how)}, _REVOKED, ask)


def move_page(visit: Visit) -> HttpResponse:
    """Say which workers may run tasks that live: what would become of them, ask, then do it."""
    given = visit.request.POST
    workers = () if "anywhere" in given else _names(given.get("workers", ""))
    prefer = _names(given.get("prefer", ""))
    if not workers and "anywhere" not in given:
        messages.warning(visit.request, "No worker was named.")
        return redirect(visit.link("tasks"))

    def ask(meant: Moved) -> dict[str, Any]:
        about = "Any worker that consumes its queue may run it from now on."
        if workers:
            about = f"Only these workers may run it from now on: {', '.join(workers)}."
        if prefer:
            about += f" First to {', '.join(prefer)}."
        named = {"workers": " ".join(workers), "prefer": " ".join(prefer)}
        hidden = named if workers else {**named, "anywhere": "yes"}
        return {"about": shown(about), "hidden": hidden, "yes": "Yes, move"}

    return _act(visit, "move_tasks", {"workers": workers, "prefer": prefer}, _MOVED, ask)


def _names(given: str) -> tuple[str, ...]:
    return tuple(given.replace(",", " ").split())


def _act(
    visit: Visit,
    name: str,
    how: dict[str, Any],
    fates: dict[str, tuple[str, str]],
    ask: Callable[[Any], dict[str, Any]],
) -> HttpResponse:
    """Act on the chosen tasks, which is asked first with what would become of each."""
    operation, posted = OPERATIONS[name], visit.request.POST
    chosen = tuple(dict.fromkeys(map(unquote, posted.getlist("quoted_id"))))
    back = visit.link("task", chosen[0]) if len(chosen) == 1 else visit.link("tasks")
    if not chosen:
        messages.warning(visit.request, "No task was chosen.")
        return redirect(back)
    if len(chosen) > _MOST_CHOSEN:
        return HttpResponseBadRequest(f"At most {_MOST_CHOSEN} at once.")
    is_asked = "confirmed" not in posted
    given = {**how, "ids": chosen, "dry_run": is_asked}
    try:
        found = operation.run(visit.desk, given, by=visit.by)
    except CannotMove as exc:
        messages.warning(visit.request, shown(str(exc), _LONGEST_SAID))
        return redirect(back)
    became: dict[str, Sequence[str]] = {one: getattr(found, one) for one in fates}
    done = [one for fate, ids in became.items() if fate not in _NOT_DONE for one in ids]
    if is_asked:
        context = {
            "title": f"{operation.name.partition('_')[0].capitalize()} "
            f"{counted(found.done, operation.noun)}?",
            "groups": [
                (f"{fates[fate][0]}:", [shown(one, _LONGEST) for one in ids])
                for fate, ids in became.items()
                if ids
            ],
            "quoted": [quoted(one) for one in done],
            "action": visit.request.path,
            "back": back,
            **ask(found),
        }
        if not done:
            context["yes"] = ""
        return visit.render("confirm", context, "tasks")
    for task_id in done:
        visit.log(task_id, operation.verb.capitalize())
    for fate, ids in became.items():
        if ids:
            level = messages.WARNING if fate in _NOT_DONE else messages.SUCCESS
            said = f"{counted(len(ids), operation.noun)} {fates[fate][1]}."
            messages.add_message(visit.request, level, said)
    return redirect(back)


def sweep_page(visit: Visit) -> HttpResponse:
    """Run a pass of the sweeper, unless one has just finished."""
    report = visit.desk.sweep(visit.by, most_passes=1)
    if report is None:
        messages.info(visit.request, "A pass runs, or has just finished: none was needed.")
    else:
        visit.log("a pass of the sweeper", "Ran it")
        done = report.done()
        said = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in done.items())
        messages.success(visit.request, f"A pass was run: {said or 'nothing was overdue'}.")
    return redirect(visit.link("overview"))

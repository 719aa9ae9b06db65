"""Dead letters in the admin: a list, a page for each, and replay and discard after a question.

Arguments are redacted; a superuser may ask for them.  Who replayed or discarded what is in the
admin's log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from celery import current_app
from django.contrib import admin, messages
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBadRequest
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.decorators import method_decorator
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_GET, require_POST

from celery_reliable.compat.app import real_app
from celery_reliable.contrib.django.models import DeadLetter
from celery_reliable.exceptions import ReliableError, UnknownDeadLetter
from celery_reliable.operations import CannotReplay, DeadLetters, full_view, short_view

__all__ = ["DeadLetterAdmin"]

_PAGE = 50
#: Short, as a browser and a thread of the web server wait for the ledger.
_PATIENCE_SECONDS = 2.0
_TEMPLATES = "admin/celery_reliable"


def _page_number(text: str) -> int:
    """Return the number of a page in a query; 1 if it is not a number or too large."""
    # Some digits are not decimals (such as ²), and the server counts in 64 bits.
    return max(1, int(text)) if text.isdecimal() and len(text) <= 9 else 1


def _encodable(value: Any) -> Any:
    """Return a view without lone surrogates, which JSON may hold but a response cannot."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {_encodable(name): _encodable(item) for name, item in value.items()}
    return [_encodable(item) for item in value] if isinstance(value, list) else value


class _Action(NamedTuple):
    permission: str
    done: str
    question: str


_ACTIONS = {
    "replay": _Action(
        "change", "replayed", "They run again, under their ids, as soon as a worker takes them."
    ),
    "discard": _Action("delete", "discarded", "Their messages are removed for good."),
}


@admin.register(DeadLetter)
class DeadLetterAdmin(admin.ModelAdmin):
    """Pages over the ledger. They replace Django's own views, as the model has no rows."""

    def get_urls(self) -> list[Any]:
        """Return the pages; their names are those that the admin links to."""
        view = self.admin_site.admin_view
        name = "celery_reliable_deadletter_%s"
        return [
            path("", view(self.changelist_view), name=name % "changelist"),
            path("act/", view(self.act_view), name=name % "act"),
            path("<path:object_id>/change/", view(self.change_view), name=name % "change"),
        ]

    def has_add_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """Nobody makes dead letters by hand."""
        return False

    @method_decorator(require_GET)
    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """List dead letters, the latest first."""
        self._require(request, "view")
        page = _page_number(request.GET.get("p", ""))
        letters, count, problem = [], 0, ""
        try:
            with self._letters() as found:
                letters = [
                    _encodable(short_view(one)) for one in found.list(_PAGE, (page - 1) * _PAGE)
                ]
                count = found.count()
        except ReliableError as exc:
            problem = str(exc)
        for letter in letters:
            letter["link"] = self._link("change", quote(letter["task_id"]))
        context = {
            "title": "Dead letters",
            "letters": letters,
            "count": count,
            "problem": problem,
            "newer": page - 1,
            "older": page + 1 if count > page * _PAGE else 0,
            **(extra_context or {}),
        }
        return self._page(request, "list", context)

    @method_decorator(require_GET)
    @method_decorator(sensitive_variables())
    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show one dead letter."""
        self._require(request, "view")
        task_id = unquote(object_id)
        with_arguments = "arguments" in request.GET
        if with_arguments and not request.user.is_superuser:
            raise PermissionDenied
        letter, problem = None, ""
        try:
            with self._letters() as found:
                letter = _encodable(full_view(found.get(task_id), with_arguments=with_arguments))
        except UnknownDeadLetter as exc:
            raise Http404(str(exc)) from exc
        except ReliableError as exc:
            problem = str(exc)
        context = {
            "title": f"Dead letter {task_id}",
            "letter": letter,
            "problem": problem,
            "with_arguments": with_arguments,
            "may_see_arguments": request.user.is_superuser,
            **(extra_context or {}),
        }
        return self._page(request, "letter", context)

    @method_decorator(require_POST)
    def act_view(self, request: HttpRequest) -> HttpResponse:
        """Replay or discard the chosen dead letters: ask first, then do it."""
        chosen = list(dict.fromkeys(request.POST.getlist("task_id")))
        name = request.POST.get("action", "")
        if name not in _ACTIONS:
            return HttpResponseBadRequest("There is no such action.")
        action = _ACTIONS[name]
        self._require(request, action.permission)
        changelist = self._link("changelist")
        if not chosen:
            messages.warning(request, "No dead letter was chosen.")
            return redirect(changelist)
        if "confirmed" not in request.POST:
            title = f"{name.capitalize()} {_counted(len(chosen))}?"
            context = {"title": title, "action": name, "about": action.question, "chosen": chosen}
            return self._page(request, "confirm", context)
        self._do(request, name, chosen)
        return redirect(changelist)

    def _do(self, request: HttpRequest, name: str, chosen: Sequence[str]) -> None:
        done = 0
        try:
            with self._letters() as letters:
                for task_id in chosen:
                    done += self._did(request, getattr(letters, name), task_id, name)
        except ReliableError as exc:
            messages.error(request, str(exc))
        if done:
            messages.success(request, f"{_counted(done)} {_ACTIONS[name].done}.")

    def _did(
        self, request: HttpRequest, act: Callable[[str], Any], task_id: str, name: str
    ) -> bool:
        try:
            outcome = act(task_id)
        except (UnknownDeadLetter, CannotReplay) as exc:
            messages.warning(request, str(exc))
            return False
        if name == "replay" and not outcome.is_sent:
            messages.warning(
                request,
                f"{task_id} could not be sent yet ({outcome.problem}); the sweeper will send it.",
            )
        self.log_change(request, DeadLetter(task_id=task_id), _ACTIONS[name].done.capitalize())
        return True

    def _letters(self) -> DeadLetters:
        return DeadLetters(real_app(current_app), patience_seconds=_PATIENCE_SECONDS)

    def _link(self, page: str, *args: str) -> str:
        name = f"admin:celery_reliable_deadletter_{page}"
        link: str = reverse(name, args=args, current_app=self.admin_site.name)
        return link

    def _require(self, request: HttpRequest, permission: str) -> None:
        if not getattr(self, f"has_{permission}_permission")(request):
            raise PermissionDenied

    def _page(self, request: HttpRequest, name: str, context: dict[str, Any]) -> HttpResponse:
        request.current_app = self.admin_site.name
        return TemplateResponse(
            request,
            f"{_TEMPLATES}/{name}.html",
            {
                **self.admin_site.each_context(request),
                "opts": self.opts,
                "may_replay": self.has_change_permission(request),
                "may_discard": self.has_delete_permission(request),
                **context,
            },
        )


def _counted(number: int) -> str:
    return f"{number} dead letter{'' if number == 1 else 's'}"

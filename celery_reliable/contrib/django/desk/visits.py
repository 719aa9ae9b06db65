"""One request for one page: who asks, what he may do, the desk, and how the answer is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from functools import cached_property
from typing import Any
from urllib.parse import quote as urlquote
from urllib.parse import urlencode

from django.contrib.admin.utils import quote
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse

from celery_reliable.contrib.django.project import desk_app
from celery_reliable.operations import ACTS, Desk, Right, as_json, printable

__all__ = ["ACT_PAGES", "NAME", "Page", "Visit", "quoted", "shown"]

#: What the names of the pages' URLs begin with.
NAME = "celery_reliable_deadletter_"
#: Short, as a browser and a thread of the web server wait for the ledger.
_PATIENCE_SECONDS = 2.0
_TEMPLATES = "admin/celery_reliable"
#: Characters of one value; what is longer is cut, and says so.
_LONGEST = 20_000
#: A page may have lines within a value.
_KEPT = "\n\t"
#: The acts that the admin has, each with the page of what it is about.
ACT_PAGES = {
    "replay_dead_letters": "changelist",
    "discard_dead_letters": "changelist",
    "replay_dead_letter_edited": "changelist",
    "revoke_tasks": "tasks",
    "move_tasks": "tasks",
    "give_order": "orders",
    "resume": "orders",
    "sweep": "overview",
}
_TABS = (
    ("overview", "Desk"),
    ("tasks", "Tasks"),
    ("changelist", "Dead letters"),
    ("groups", "Groups"),
    ("objects", "Objects"),
    ("workers", "Workers"),
    ("orders", "Orders"),
    ("audit", "Audit"),
)


@dataclass(frozen=True)
class Page:
    """A page of the desk.

    Attributes:
        name: of its URL, after `NAME`.
        route: below that of the dead letters.
        answer: makes the response.
        right: what is needed to see it; None: the page itself says, by what is asked.
        methods: of HTTP.  What is done is done by a POST only.
        sensitive: what is posted that no report of an error may show.
    """

    name: str
    route: str
    answer: Callable[..., HttpResponse]
    right: Right | None = Right.VIEW
    methods: tuple[str, ...] = ("GET", "HEAD")
    sensitive: tuple[str, ...] = ()


class Visit:
    """A request to a page."""

    def __init__(self, admin: Any, request: Any) -> None:
        self.admin = admin
        self.request = request

    def may(self, right: Right) -> bool:
        """Whether who asks may do it."""
        return bool(self.admin.may(self.request, right))

    def require(self, right: Right) -> None:
        """Raise PermissionDenied unless who asks may do it."""
        if not self.may(right):
            raise PermissionDenied

    @property
    def by(self) -> str:
        """Who asks, for the audit."""
        return f"django:{self.request.user.get_username()}"

    @cached_property
    def desk(self) -> Desk:
        """The desk; `close` closes it."""
        return Desk(
            desk_app(),
            patience_seconds=_PATIENCE_SECONDS,
            sees_arguments=self.may(Right.SEE_ARGUMENTS),
        )

    def close(self) -> None:
        """Close the connections, if there are any."""
        if "desk" in self.__dict__:
            self.desk.close()

    def link(self, page: str, *args: str, **query: str) -> str:
        """Return the address of a page on this site."""
        safe = [quote(_encodable(arg)) for arg in args]
        found: str = reverse(
            f"admin:{NAME}{page}", args=safe, current_app=self.admin.admin_site.name
        )
        asked = {name: _encodable(value) for name, value in query.items()}
        return f"{found}?{urlencode(asked)}" if asked else found

    @cached_property
    def acts(self) -> dict[str, str]:
        """The addresses of the acts that whoever asks may do, by the names of the operations."""
        site = self.admin.admin_site.name
        return {
            one.name: reverse(f"admin:{NAME}act", args=[one.name], current_app=site)
            for one in ACTS
            if one.name in ACT_PAGES and all(map(self.may, one.needs))
        }

    def render(
        self, name: str, context: Mapping[str, Any], page: str = "", status: int = 200
    ) -> HttpResponse:
        """Return a template with its context, and with what each page has."""
        self.request.current_app = self.admin.admin_site.name
        return TemplateResponse(
            self.request,
            f"{_TEMPLATES}/{name}.html",
            {
                **self.admin.admin_site.each_context(self.request),
                "opts": self.admin.opts,
                "tabs": [
                    {"name": tab, "label": label, "link": self.link(tab), "is_here": tab == page}
                    for tab, label in _TABS
                    if self.may(Right.VIEW)
                ],
                "acts": self.acts,
                "may_see_arguments": self.may(Right.SEE_ARGUMENTS),
                **context,
            },
            status=status,
        )


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def quoted(task_id: str) -> str:
    """Return an id as an input of a form keeps it: a browser changes line ends, and drops NUL."""
    return urlquote(_encodable(task_id), safe="")


def shown(value: Any, longest: int = _LONGEST) -> Any:
    """Return a thing, or values, as a page can have it: no half characters, nothing that directs a
    terminal or turns the direction of a text, and nothing endless.
    """
    if isinstance(value, str):
        if len(value) <= longest:
            return printable(value, keeps=_KEPT)
        return f"{printable(value[:longest], keeps=_KEPT)}… ({len(value)} characters)"
    if is_dataclass(value):
        value = as_json(value)
    if isinstance(value, Mapping):
        return {shown(name): shown(item, longest) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [shown(item, longest) for item in value]
    return value

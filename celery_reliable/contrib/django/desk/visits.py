"""One request for one page: who asks, what he may do, the desk, and how the answer is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import urlencode

from django.contrib.admin.utils import quote
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse

from celery_reliable.contrib.django.permissions import may
from celery_reliable.operations import ACTS, Right, printable

__all__ = ["ACT_PAGES", "NAME", "OF_ADMIN", "Visit", "raw", "shown"]

#: What the names of the pages' URLs begin with.
NAME = "celery_reliable_deadletter_"
#: Characters of one value; what is longer is cut, and says so.
_LONGEST = 20_000
#: Of one in an address.
_LONGEST_ASKED = 300
#: A page may have lines within a value.
_KEPT = "\n\t"
#: The acts that the admin has, each with the page of what it is about.
ACT_PAGES = {
    "replay_dead_letters": "letters",
    "discard_dead_letters": "letters",
    "replay_dead_letter_edited": "letters",
    "revoke_tasks": "tasks",
    "move_tasks": "tasks",
    "give_order": "orders",
    "resume": "orders",
    "sweep": "overview",
}
#: These acts by their names.
OF_ADMIN = {one.name: one for one in ACTS if one.name in ACT_PAGES}
_TABS = (
    ("overview", "Desk"),
    ("tasks", "Tasks"),
    ("letters", "Dead letters"),
    ("groups", "Groups"),
    ("objects", "Objects"),
    ("workers", "Workers"),
    ("orders", "Orders"),
    ("audit", "Audit"),
)


@dataclass
class Visit:
    """A request to a page."""

    admin: Any
    request: Any
    #: While a page is made.
    desk: Any = None

    def may(self, right: Right) -> bool:
        """Whether who asks may do it.  What a project overrides of the admin's methods counts."""
        own = {
            Right.VIEW: self.admin.has_view_permission,
            Right.REPLAY: self.admin.has_change_permission,
            Right.DISCARD: self.admin.has_delete_permission,
        }
        ask = own.get(right)
        return bool(ask(self.request) if ask else may(self.request.user, right))

    def require(self, *rights: Right) -> None:
        """Raise PermissionDenied unless who asks may do it."""
        if not all(map(self.may, rights)):
            raise PermissionDenied

    def link(self, page: str, *args: str, **query: str) -> str:
        """Return the address of a page on this site; of texts that were made `shown`, too."""
        found: str = reverse(
            f"admin:{NAME}{page}",
            args=[quote(raw(arg)) for arg in args],
            current_app=self.admin.admin_site.name,
        )
        asked = {name: raw(value)[:_LONGEST_ASKED] for name, value in query.items()}
        return f"{found}?{urlencode(asked)}" if asked else found

    @cached_property
    def acts(self) -> dict[str, str]:
        """The addresses of the acts that whoever asks may do, by the names of the operations."""
        site = self.admin.admin_site.name
        return {
            name: reverse(f"admin:{NAME}act", args=[name], current_app=site)
            for name, one in OF_ADMIN.items()
            if all(map(self.may, one.needs))
        }

    def render(
        self, name: str, context: Mapping[str, Any], page: str = "", status: int = 200
    ) -> HttpResponse:
        """Return a template with its context, and with what each page has."""
        self.request.current_app = self.admin.admin_site.name
        return TemplateResponse(
            self.request,
            f"admin/celery_reliable/{name}.html",
            {
                **self.admin.admin_site.each_context(self.request),
                "opts": self.admin.opts,
                "tabs": _TABS,
                "here": page,
                "visit": self,
                "acts": self.acts,
                "may_see_arguments": self.may(Right.SEE_ARGUMENTS),
                **context,
            },
            status=status,
        )


class _Shown(str):
    """A text that is safe to show, with the original for links: `raw`."""

    raw = ""


def raw(text: Any) -> str:
    """Return the original of a text that `shown` has made, or any other text, as an address can
    have it: with an escape in place of each half character.
    """
    return str(getattr(text, "raw", text)).encode("utf-8", "backslashreplace").decode()


def shown(value: Any, longest: int = _LONGEST) -> Any:
    """Return values as a page can have them: no half characters, nothing that directs a
    terminal or turns the direction of a text, and nothing endless.  Links are made of it as of what
    it was.
    """
    if isinstance(value, str):
        more = f"… ({len(value)} characters)" if len(value) > longest else ""
        text = _Shown(f"{printable(value[:longest], keeps=_KEPT)}{more}")
        text.raw = value
        return text
    if isinstance(value, Mapping):
        return {shown(name): shown(item, longest) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [shown(item, longest) for item in value]
    return value

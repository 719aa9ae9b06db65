"""One request for one page: who asks, what he may do, the desk, how the answer is made; and the
forms made from what an operation declares: filters of lists, and what an act is given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial
from typing import Any, get_origin
from urllib.parse import unquote, urlencode

from django import forms
from django.contrib.admin.utils import quote
from django.core.exceptions import PermissionDenied
from django.core.validators import MaxLengthValidator
from django.http import HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse

from celery_reliable.contrib.django.project import may
from celery_reliable.operations import (
    ACTS,
    Filter,
    Operation,
    Parameter,
    Right,
    as_json,
    parse_age,
    printable,
)

__all__ = ["ACT_PAGES", "NAME", "OF_ADMIN", "OperationForm", "Visit", "raw", "shown"]

#: What the names of the pages' URLs begin with.
NAME = "celery_reliable_deadletter_"
#: Characters of one value; what is longer is cut, and says so.
_LONGEST_SHOWN = 20_000
#: Of one in an address.
_LONGEST_ASKED = 300
#: The acts that the admin has, each with the page of what it is about.
ACT_PAGES = {
    "replay_dead_letters": "letters",
    "discard_dead_letters": "letters",
    "revoke_tasks": "tasks",
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
#: What a page sets itself, of an act and of a list.
_OURS = ("dry_run", "seconds")
_OF_PAGES = ("cursor", "limit")
#: What is meant, and where it goes on: a page keeps these, and nobody types them.
_KEPT = ("ids", "all", "group", "before", "cursor")
#: Fields that say which things are meant, and not what is done to them.  An object id may be an
#: argument, and what is meant is noted in the admin's log.
_MEANING = {"group", "ids", "orders", "target", *Filter.__dataclass_fields__}
#: What Django has a field for.
_PLAIN = {
    int: forms.IntegerField,
    float: forms.FloatField,
    bool: forms.BooleanField,
    datetime: forms.DateTimeField,
}


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


def shown(value: Any, longest: int = _LONGEST_SHOWN) -> Any:
    """Return values as a page can have them: no half characters, nothing that directs a
    terminal or turns the direction of a text, and nothing endless.  Links are made of it as of what
    it was.
    """
    if isinstance(value, str):
        more = f"… ({len(value)} characters)" if len(value) > longest else ""
        # A page may have lines within a value.
        text = _Shown(printable(value[:longest], keeps="\n\t") + more)
        text.raw = value
        return text
    if isinstance(value, Mapping):
        return {shown(name): shown(item, longest) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [shown(item, longest) for item in value]
    return value


class _Field(forms.Field):
    """A field whose text, or list of texts, a function parses.  An empty one is None."""

    def __init__(self, read: Callable[[Any], Any], **how: Any) -> None:
        super().__init__(**how)
        self._read = read

    def to_python(self, value: Any) -> Any:
        given = value.strip() if isinstance(value, str) else value
        try:
            return self._read(given) if given else None
        except ValueError as exc:
            raise forms.ValidationError(str(exc)) from exc


class OperationForm(forms.Form):
    """What somebody gives to an operation.

    Args:
        operation: a query, or an act.
        data: what was given.  An empty form is bound, too: nothing has to be given.
    """

    def __init__(self, operation: Operation, data: Any) -> None:
        super().__init__(data.copy(), auto_id=f"{'act' if operation.is_act else 'filter'}-%s")
        self.operation = operation
        left_out = _OURS if operation.is_act else _OF_PAGES
        for one in operation.parameters:
            if one.name in left_out:
                continue
            field = self.fields[one.name] = _field(one)
            is_kept = one.name in _KEPT or (operation.is_act and one.of)
            if is_kept and one.name != "ids":
                field.widget = forms.HiddenInput()

    @property
    def given(self) -> dict[str, Any]:
        """What was given, as `Operation.run` takes it."""
        return {
            name: value
            for name, value in self.cleaned_data.items()
            if value is not None and value is not False
        }

    @property
    def meant(self) -> list[tuple[str, str]]:
        """Which are meant, as it was given, with the labels of the inputs."""
        texts = {**self._texts, "ids": ", ".join(map(unquote, self.data.getlist("ids")))}
        return [
            (str(self[name].label), text)
            for name, text in texts.items()
            if text and name in _MEANING
        ]

    def put(self, **values: Any) -> None:
        """Have the form show these values."""
        self.cleaned_data |= values
        for name, value in values.items():
            self.data[name] = str(as_json(value))

    @property
    def _texts(self) -> dict[str, str]:
        texts = {name: str(self.data.get(name) or "").strip() for name in self.fields}
        return {name: text for name, text in texts.items() if text and name != "ids"}

    def query(self, **more: str) -> str:
        """Return the query of an address that gives the same, and more; ids are in none."""
        return urlencode({**self._texts, **more})

    @property
    def problem(self) -> str:
        """What is wrong, in words."""
        return " ".join(
            f"{self[name].label if name in self.fields else ''}: {' '.join(found)}"
            for name, found in self.errors.items()
        )


def _field(one: Parameter) -> forms.Field:
    param, kind = one.param, one.type
    how: dict[str, Any] = {
        "required": one.is_required,
        "label": one.name.removesuffix("_seconds").replace("_", " ").capitalize(),
        "help_text": param.help,
    }
    if one.choices:
        return _choice(one, how)
    if one.name == "ids":
        most = MaxLengthValidator(param.most, "At most %(limit_value)d at once.")
        # As a browser kept them, which changes line ends and drops NUL.
        return _Field(
            lambda quoted: tuple(dict.fromkeys(map(unquote, quoted))),
            widget=forms.MultipleHiddenInput,
            validators=[most],
            **how,
        )
    if get_origin(kind) is tuple:
        return _Field(lambda text: tuple(text.replace(",", " ").split()), **how)
    if param.is_duration:
        words = forms.TextInput({"placeholder": "90, 15m, 2h, 3d", "maxlength": 20})
        return _Field(partial(parse_age, least=param.ge or 0, most=param.le), widget=words, **how)
    if kind in _PLAIN:
        bounds = {"min_value": param.ge, "max_value": param.le} if kind in (int, float) else {}
        return _PLAIN[kind](**bounds, **how)
    # With whatever characters: somebody's task may be called so.
    text = forms.TextInput({"maxlength": param.max_length})
    return _Field(str, widget=text, validators=[MaxLengthValidator(param.max_length)], **how)


def _choice(one: Parameter, how: dict[str, Any]) -> forms.Field:
    # A browser gives the first.
    first = getattr(one.default, "value", one.default)
    options = [(name, name) for name in sorted(one.choices, key=lambda name: name != first)]
    if first not in one.choices and not one.is_required:
        options.insert(0, ("", "any"))
    return forms.TypedChoiceField(coerce=one.type, choices=options, empty_value=None, **how)

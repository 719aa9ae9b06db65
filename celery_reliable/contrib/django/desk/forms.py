"""Forms made from what an operation declares: filters of lists, and what an act is given."""

from __future__ import annotations

import json
from datetime import datetime
from enum import Enum
from typing import Any, get_origin
from urllib.parse import unquote, urlencode

from django import forms
from django.core.validators import MaxLengthValidator

from celery_reliable.operations import Operation, Parameter, parse_age

__all__ = ["TALLY", "OperationForm"]

#: Nobody's name is so long.
_LONGEST = 1_000

#: What a page sets itself, of an act and of a list.
_OURS = ("dry_run", "seconds")
_OF_PAGES = ("cursor", "limit")
#: How far an act has come, and how far it goes: a page keeps these beside what is given.
TALLY = ("done", "gone", "failed", "total")
#: What is meant, and where it goes on: a page keeps these, and nobody types them.
_KEPT = ("id", "ids", "all", "group", "before", "cursor")


class _Ids(forms.Field):
    """Ids as a browser keeps them, which changes line ends and drops NUL: quoted."""

    widget = forms.MultipleHiddenInput

    def __init__(self, most: int | None, **how: Any) -> None:
        super().__init__(**how)
        self._most = most

    def to_python(self, value: Any) -> tuple[str, ...]:
        return tuple(dict.fromkeys(map(unquote, value or ())))

    def validate(self, value: Any) -> None:
        super().validate(value)
        if self._most is not None and len(value) > self._most:
            raise forms.ValidationError(f"At most {self._most} at once.")


class _Id(forms.Field):
    def to_python(self, value: Any) -> str:
        return unquote(value or "")


class _Text(forms.Field):
    """A text with whatever characters: somebody's task may be called so."""

    def to_python(self, value: Any) -> str:
        return str(value or "").strip()


class _Names(forms.CharField):
    """Several names, with spaces or commas between them."""

    def to_python(self, value: Any) -> Any:
        return tuple(super().to_python(value).replace(",", " ").split())


class _Duration(forms.CharField):
    def to_python(self, value: Any) -> Any:
        text = super().to_python(value)
        try:
            return parse_age(text) if text else None
        except ValueError as exc:
            raise forms.ValidationError(str(exc)) from exc


class _Json(forms.CharField):
    """A JSON list or object.  An error says what is wrong, and not what is there."""

    widget = forms.Textarea

    def __init__(self, kind: type, **how: Any) -> None:
        super().__init__(**how)
        self._kind = kind

    def to_python(self, value: Any) -> Any:
        text = super().to_python(value)
        if not text:
            return None
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, self._kind):
            raise forms.ValidationError(f"a JSON {'list' if self._kind is list else 'object'}.")
        return found


class OperationForm(forms.Form):
    """What somebody gives to an operation.  An id of an object is in no filter: it may be an
    argument, and a filter is in the address.

    Args:
        operation: a query, or an act.
        data: what was given.  An empty form is bound, too: nothing has to be given.
    """

    data: Any

    def __init__(self, operation: Operation, data: Any) -> None:
        super().__init__(data.copy(), auto_id=f"{'act' if operation.is_act else 'filter'}-%s")
        self.operation = operation
        self._parameters = operation.parameters
        #: Which are meant, and not what becomes of them.
        self._meaning = {"group", "id", "ids", "order", "target"}
        for one in self._parameters:
            if one.name in (_OURS if operation.is_act else _OF_PAGES):
                continue
            if one.parts:
                self._meaning |= {part.name for part in one.parts}
            for part in one.parts or (one,):
                if one.parts and part.name == "object_id":
                    continue
                field = self.fields[part.name] = _field(part)
                is_kept = part.name in _KEPT or (operation.is_act and one.parts)
                if is_kept and not isinstance(field, _Ids):
                    field.widget = forms.HiddenInput()
            if one.param.none_option:
                name = one.param.none_option[0].strip("-")
                self.fields[name] = forms.BooleanField(required=False)
        if operation.is_act:
            for name in TALLY:
                hidden = forms.HiddenInput()
                self.fields[name] = forms.IntegerField(min_value=0, required=False, widget=hidden)

    def clean(self) -> dict[str, Any]:
        """Refuse a list that is needed and empty, unless somebody has said that none is meant."""
        for one in self._parameters:
            option = "".join(one.param.none_option[:1]).strip("-")
            if option and not (self.cleaned_data.get(option) or self.cleaned_data.get(one.name)):
                self.add_error(one.name, f"Name one, or say {option}.")
        return dict(self.cleaned_data)

    def takes(self, name: str) -> bool:
        """Whether the operation has this parameter."""
        return any(one.name == name for one in self._parameters)

    @property
    def given(self) -> dict[str, Any]:
        """What was given, as `Operation.run` takes it."""
        found: dict[str, Any] = {}
        for one in self._parameters:
            if one.parts:
                found[one.name] = one.type(**self._given(one.parts))
            elif one.is_required and one.name in self.cleaned_data:
                found[one.name] = self.cleaned_data[one.name]
            else:
                found |= self._given((one,))
        return found

    def _given(self, among: tuple[Parameter, ...]) -> dict[str, Any]:
        values = {one.name: self.cleaned_data.get(one.name) for one in among}
        return {
            name: one
            for name, one in values.items()
            if one is not None and one != "" and one != () and one is not False
        }

    @property
    def meant(self) -> list[tuple[str, str]]:
        """Which are meant, as it was given, with the labels of the inputs."""
        ids = self.cleaned_data.get("ids", ()) if self.is_valid() else ()
        texts = {**self._texts, "ids": ", ".join(ids)}
        return [
            (str(self[name].label), unquote(text) if name == "id" else text)
            for name, text in texts.items()
            if text and name in self._meaning
        ]

    def put(self, name: str, value: Any) -> None:
        """Have the form show this value."""
        self.data[name] = str(value)
        self.cleaned_data[name] = value

    @property
    def tally(self) -> dict[str, int]:
        """How far an act has come."""
        self.is_valid()
        return {name: self.cleaned_data.get(name) or 0 for name in TALLY}

    @property
    def is_begun(self) -> bool:
        """Whether a portion of an act is done, or somebody goes on with it."""
        return bool(self.data.get("done"))

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
    param, kind, origin = one.param, one.type, get_origin(one.type)
    how: dict[str, Any] = {
        "required": one.is_required and not param.none_option,
        "label": one.name.removesuffix("_seconds").replace("_", " ").capitalize(),
        "help_text": param.help,
    }
    if param.choices or (origin is None and issubclass(kind, Enum)):
        return _choice(one, how)
    if one.name == "ids":
        return _Ids(param.most, **how)
    if origin is tuple:
        return _Names(**how)
    if origin is not None:
        return _Json(origin, **how)
    if kind is str and one.name != "id":
        most = param.max_length or _LONGEST
        how["validators"] = [MaxLengthValidator(most)]
        return _Text(widget=forms.TextInput({"maxlength": most}), **how)
    if kind in (int, float):
        return _number(one, how)
    others = {bool: forms.BooleanField, datetime: forms.DateTimeField, str: _Id}
    return others[kind](**how)


def _choice(one: Parameter, how: dict[str, Any]) -> forms.Field:
    choices, kind = one.param.choices, one.type
    if not choices:
        choices = tuple(str(item.value) for item in kind)
    default = getattr(one.default, "value", one.default)
    options = [(name, name) for name in choices]
    if default in choices:
        # A browser gives the first.
        options.sort(key=lambda option: option[0] != default)
    elif not one.is_required:
        options.insert(0, ("", "any"))
    return forms.TypedChoiceField(coerce=kind, choices=options, empty_value=None, **how)


def _number(one: Parameter, how: dict[str, Any]) -> forms.Field:
    if one.param.is_duration:
        words = forms.TextInput({"placeholder": "90, 15m, 2h, 3d", "maxlength": 20})
        return _Duration(widget=words, **how)
    shows = {"step": "any" if one.type is float else "1"}
    if isinstance(one.default, (int, float)):
        shows["placeholder"] = f"{one.default:g}"
    kind = forms.IntegerField if one.type is int else forms.FloatField
    number = forms.NumberInput(shows)
    return kind(min_value=one.param.ge, max_value=one.param.le, widget=number, **how)

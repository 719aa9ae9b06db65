"""Forms made from what an operation declares: filters of lists, and what an act is given."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any, get_origin
from urllib.parse import unquote, urlencode

from django import forms
from django.core.validators import MaxLengthValidator

from celery_reliable.operations import Filter, Operation, Parameter, parse_age, parse_json

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
#: Fields that say which things are meant, and not what is done to them.  An object id may be an
#: argument, and what is meant is noted in the admin's log.
_MEANING = {"group", "id", "ids", "orders", "target", *Filter.__dataclass_fields__}
_MEANING -= {"object_id"}
#: What Django has a field for.
_PLAIN = {
    int: forms.IntegerField,
    float: forms.FloatField,
    bool: forms.BooleanField,
    datetime: forms.DateTimeField,
}


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
    """What somebody gives to an operation.  An id of an object is in no filter: it may be an
    argument, and a filter is in the address.

    Args:
        operation: a query, or an act.
        data: what was given.  An empty form is bound, too: nothing has to be given.
    """

    def __init__(self, operation: Operation, data: Any) -> None:
        super().__init__(data.copy(), auto_id=f"{'act' if operation.is_act else 'filter'}-%s")
        self.operation = operation
        left_out = _OURS if operation.is_act else _OF_PAGES
        for one in operation.parameters:
            if one.name in left_out or (one.of and one.name == "object_id"):
                continue
            field = self.fields[one.name] = _field(one)
            is_kept = one.name in _KEPT or (operation.is_act and one.of)
            if is_kept and one.name != "ids":
                field.widget = forms.HiddenInput()
        for name in TALLY if operation.is_act else ():
            hidden = forms.HiddenInput()
            self.fields[name] = forms.IntegerField(min_value=0, required=False, widget=hidden)

    @property
    def given(self) -> dict[str, Any]:
        """What was given, as `Operation.run` takes it."""
        return {
            name: value
            for name, value in self.cleaned_data.items()
            if name not in TALLY and value is not None and value is not False
        }

    @property
    def meant(self) -> list[tuple[str, str]]:
        """Which are meant, as it was given, with the labels of the inputs."""
        texts = {**self._texts, "ids": ", ".join(map(unquote, self.data.getlist("ids")))}
        return [
            (str(self[name].label), unquote(text) if name == "id" else text)
            for name, text in texts.items()
            if text and name in _MEANING
        ]

    def put(self, **values: Any) -> None:
        """Have the form show these values."""
        self.cleaned_data |= values
        for name, value in values.items():
            self.data[name] = str(value)

    @property
    def tally(self) -> dict[str, int]:
        """The counts of the portions so far."""
        return {name: self.cleaned_data.get(name) or 0 for name in TALLY}

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
    if origin is tuple:
        return _Field(lambda text: tuple(text.replace(",", " ").split()), **how)
    if origin is not None:
        return _Field(partial(parse_json, origin), widget=forms.Textarea, **how)
    if param.is_duration:
        words = forms.TextInput({"placeholder": "90, 15m, 2h, 3d", "maxlength": 20})
        return _Field(
            partial(parse_age, least=param.least or 0, most=param.le), widget=words, **how
        )
    if kind in _PLAIN:
        bounds = {"min_value": param.ge, "max_value": param.le} if kind in (int, float) else {}
        return _PLAIN[kind](**bounds, **how)
    if one.name == "id":
        return _Field(unquote, **how)
    longest = param.max_length or _LONGEST
    # With whatever characters: somebody's task may be called so.
    text = forms.TextInput({"maxlength": longest})
    return _Field(str, widget=text, validators=[MaxLengthValidator(longest)], **how)


def _choice(one: Parameter, how: dict[str, Any]) -> forms.Field:
    # A browser gives the first.
    first = getattr(one.default, "value", one.default)
    options = [(name, name) for name in sorted(one.choices, key=lambda name: name != first)]
    if first not in one.choices and not one.is_required:
        options.insert(0, ("", "any"))
    return forms.TypedChoiceField(coerce=one.type, choices=options, empty_value=None, **how)

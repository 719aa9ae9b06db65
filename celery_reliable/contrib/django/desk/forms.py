"""Forms made of what operations declare of their parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any
from urllib.parse import urlencode

from django import forms

from celery_reliable.operations import (
    ACTS,
    QUERIES,
    Filter,
    Operation,
    Parameter,
    parse_age,
)

__all__ = ["OPERATIONS", "AskForm", "parameters_of"]

OPERATIONS: dict[str, Operation] = {one.name: one for one in (*QUERIES, *ACTS)}
#: Nobody's name is so long.
_LONGEST = 1_000
#: What one input is called for people, where its name does not say it.
_LABELS = {"exception": "Exception", "cause": "Killed by"}


class _Text(forms.Field):
    """Text as it is: names of tasks may have what Django refuses in a form, such as NUL."""

    widget = forms.TextInput

    def to_python(self, value: Any) -> str:
        """Return it, cut to what a name may have."""
        return str(value or "").strip()[:_LONGEST]


class _Age(_Text):
    """A length of time: 90, 15m, 2h, 3d."""

    def clean(self, value: Any) -> float | None:
        """Return seconds; None for nothing."""
        text = super().clean(value)
        try:
            return parse_age(text) if text else None
        except ValueError as exc:
            raise forms.ValidationError(str(exc)) from None


class AskForm(forms.Form):
    """What somebody asks for, by parameters of an operation; nothing is required.

    An input has the name of its parameter, without ``_seconds``.  A filter's parts are inputs of
    their own, but for an object's id: that may be an argument, and what is asked for is in the
    address.

    Args:
        parameters: the operation's.
        given: the query of a GET, or what was posted.
        extra: inputs that go with them.
    """

    def __init__(
        self,
        parameters: Iterable[Parameter],
        given: Mapping[str, Any],
        extra: Mapping[str, forms.Field] | None = None,
    ) -> None:
        super().__init__(given, auto_id="filter-%s", use_required_attribute=False)
        self._parameters = {
            _name(part): part
            for one in parameters
            for part in one.parts or (one,)
            if part.name != "object_id"
        }
        self.fields.update({name: _field(name, one) for name, one in self._parameters.items()})
        self.fields.update(extra or {})

    @property
    def values(self) -> dict[str, str]:
        """What was given, as it was typed."""
        found = {name: str(self.data.get(name, "")).strip()[:_LONGEST] for name in self.fields}
        return {name: value for name, value in found.items() if value}

    @property
    def asked(self) -> dict[str, Any]:
        """What was given, by the names of the parameters; of what is wrong nothing."""
        self.is_valid()
        found = {one.name: self.cleaned_data.get(name) for name, one in self._parameters.items()}
        return {name: value for name, value in found.items() if value not in (None, "")}

    @property
    def filter(self) -> Filter:
        """The parts of a filter that were given."""
        names = Filter.__dataclass_fields__
        return Filter(**{name: one for name, one in self.asked.items() if name in names})

    @property
    def problems(self) -> list[str]:
        """What is wrong with what was given."""
        return [
            f"{self.label(name)}: {message}"
            for name, messages in self.errors.items()
            for message in messages
        ]

    def label(self, name: str) -> str:
        """Return what an input is called for people."""
        return str(self.fields[name].label)

    def said(self, without: Iterable[str] = ()) -> list[tuple[str, str]]:
        """Return what is asked for, in words."""
        values = self.values
        names = [one for one in self._parameters if one in values and one not in without]
        return [(self.label(name), values[name]) for name in names]

    def query(self, **more: str) -> str:
        """Return the query of a link that asks for the same, and for more."""
        return urlencode({**self.values, **{k: v for k, v in more.items() if v}})


def parameters_of(operation: str, *names: str) -> list[Parameter]:
    """Return parameters of an operation by their names; all without any."""
    found = OPERATIONS[operation].parameters
    return [one for one in found if not names or one.name in names]


def _name(one: Parameter) -> str:
    return one.name.removesuffix("_seconds") if one.param.is_duration else one.name


def _field(name: str, one: Parameter) -> forms.Field:
    param = one.param
    label = _LABELS.get(name, name.replace("_", " ").capitalize())
    how: dict[str, Any] = {"label": label, "required": False}
    choices = param.choices
    if isinstance(one.type, type) and issubclass(one.type, Enum):
        choices = tuple(each.value for each in one.type)
    if choices:
        return forms.ChoiceField(choices=[("", "any"), *((each, each) for each in choices)], **how)
    how["widget"] = forms.TextInput(attrs={"placeholder": param.help.rstrip(".")})
    if name == "group":
        # Links lead to it, and nobody types one.
        return _Text(**{**how, "widget": forms.HiddenInput()})
    if param.is_duration:
        return _Age(**how)
    if one.type not in (int, float):
        return _Text(**how)
    number = forms.IntegerField if one.type is int else forms.FloatField
    how["widget"] = forms.NumberInput(attrs={"step": 1 if one.type is int else "any"})
    return number(min_value=param.ge, max_value=param.le, **how)

"""What a filter form asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from celery_reliable.model import Reason
from celery_reliable.operations import Filter, parse_age

__all__ = ["LETTERS", "TASKS", "Asked", "Field"]

#: Nobody's name is so long.
_LONGEST = 1_000


@dataclass(frozen=True)
class Field:
    """One input of the form."""

    name: str
    label: str
    hint: str = ""
    choices: tuple[str, ...] = ()


# There is none for an object's id: it may be an argument, and what is asked for is in the address.
LETTERS = (
    Field("text", "Text", "in name, exception or id"),
    Field("task", "Task", "billing.*"),
    Field("queue", "Queue"),
    Field("reason", "Reason", choices=tuple(one.value for one in Reason)),
    Field("exception", "Exception", "its type: Value*"),
    Field("cause", "Killed by", "SIGKILL"),
    Field("worker", "Worker", "celery@host*"),
    Field("older_than", "Older than", "90, 15m, 2h, 3d"),
    Field("newer_than", "Newer than", "90, 15m, 2h, 3d"),
)
TASKS = tuple(one for one in LETTERS if one.name not in ("reason", "exception"))


class Asked:
    """The filter that a form says, and the form filled in.

    Args:
        given: the query of a GET, or what was posted.
        fields: of the form.
        others: names of inputs that go with it: a group, a state.
    """

    def __init__(
        self, given: Mapping[str, str], fields: tuple[Field, ...], others: tuple[str, ...] = ()
    ) -> None:
        self._fields = fields
        self.problems: list[str] = []
        #: What is asked for, by the names of the inputs.
        self.values = {
            name: value
            for name in (*(one.name for one in fields), *others)
            if (value := given.get(name, "").strip()[:_LONGEST])
        }
        self.filter = self._filter()

    @property
    def inputs(self) -> list[dict[str, Any]]:
        """The form, for a template."""
        return [
            {
                "name": one.name,
                "label": one.label,
                "hint": one.hint,
                "choices": one.choices,
                "value": self.values.get(one.name, ""),
            }
            for one in self._fields
        ]

    @property
    def said(self) -> list[tuple[str, str]]:
        """What is asked for, in words."""
        labels = {one.name: one.label for one in self._fields}
        return [(labels.get(name, name.capitalize()), one) for name, one in self.values.items()]

    def query(self, **more: str) -> str:
        """Return the query of a link that asks for the same, and for more."""
        return urlencode({**self.values, **{k: v for k, v in more.items() if v}})

    def _filter(self) -> Filter:
        found: dict[str, Any] = {}
        for one in self._fields:
            value = self.values.get(one.name)
            if value is None:
                continue
            if one.choices and value not in one.choices:
                self.problems.append(f"{one.label}: one of {', '.join(one.choices)}.")
            elif one.name in ("older_than", "newer_than"):
                self._age(found, one, value)
            else:
                found[one.name] = value
        return Filter(**found)

    def _age(self, found: dict[str, Any], one: Field, value: str) -> None:
        try:
            found[f"{one.name}_seconds"] = parse_age(value)
        except ValueError as exc:
            self.problems.append(f"{one.label}: {exc}")

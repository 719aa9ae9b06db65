"""What all answers have in common."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from inspect import get_annotations
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**about):
        return lambda cls: cls


__all__ = ["Answer"]


@dataclass_transform(frozen_default=True, eq_default=False)
@dataclass(frozen=True, repr=False, eq=False)
class Answer:
    """The base of all answers, each of which is a dataclass.  Two with the same values are equal.

    It has the comparison of all: one made for each class would take half of the time of importing
    them.
    """

    #: Its name on the wire and in logs.
    word: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        if "word" not in cls.__dict__:
            cls.word = re.sub(r"(?<=.)([A-Z])", r"_\1", cls.__name__).lower()
        if get_annotations(cls):
            dataclass(frozen=True, repr=False, eq=False)(cls)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and _values(self) == _values(other)

    def __hash__(self) -> int:
        return hash(_values(self))

    def __repr__(self) -> str:
        shown = zip((one.name for one in fields(self)), _values(self), strict=True)
        return f"{type(self).__qualname__}({', '.join(f'{k}={v!r}' for k, v in shown)})"


def _values(answer: Answer) -> tuple[object, ...]:
    return tuple(getattr(answer, one.name) for one in fields(answer))

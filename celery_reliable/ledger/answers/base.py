"""What all answers have in common."""

from __future__ import annotations

import re
from copy import copy
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Answer"]


@dataclass(frozen=True, repr=False, eq=False)
class Answer:
    """The base of all answers.  Two with the same values are equal.

    It has the comparison of all: one made for each class would take half of the time of importing
    them.
    """

    #: The call was sent more than once, and an earlier copy may have been executed.  This is no
    #: field, so answers that differ only in it are equal.
    is_repeated = False
    #: Its name on the wire and in logs.
    word: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        if "word" not in cls.__dict__:
            cls.word = re.sub(r"(?<=.)([A-Z])", r"_\1", cls.__name__).lower()

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and _values(self) == _values(other)

    def __hash__(self) -> int:
        return hash(_values(self))

    def __repr__(self) -> str:
        shown = zip((one.name for one in fields(self)), _values(self), strict=True)
        return f"{type(self).__qualname__}({', '.join(f'{k}={v!r}' for k, v in shown)})"

    def repeated(self) -> Self:
        """Return the same answer, marked as that of a call that was sent more than once."""
        again = copy(self)
        object.__setattr__(again, "is_repeated", True)
        return again


def _values(answer: Answer) -> tuple[object, ...]:
    return tuple(getattr(answer, one.name) for one in fields(answer))

"""What all answers have in common."""

from __future__ import annotations

import re
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Answer"]


@dataclass(frozen=True)
class Answer:
    """What all answers have in common; equal to another with the same values."""

    #: The call was sent more than once, and an earlier one may have been executed: none of the
    #: values, and nothing that makes two answers differ.
    is_repeated = False
    #: Its name on the wire and in logs.
    word: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        if "word" not in cls.__dict__:
            cls.word = re.sub(r"(?<=.)([A-Z])", r"_\1", cls.__name__).lower()

    def repeated(self) -> Self:
        """Return the same of a call that was sent more than once."""
        again = copy(self)
        object.__setattr__(again, "is_repeated", True)
        return again

"""What scripts answer: a class for each reply in their headers, and a union for each script.

`answers.pyi` lists them with their fields.  A class is called as its word: ``{"no_lease"}`` is
`NoLease`; the union of what ``claim`` answers is `ClaimAnswer`.
"""

from __future__ import annotations

import re
import threading
from functools import cache, reduce
from operator import or_
from typing import Any, ClassVar

from celery_reliable.ledger.headers import header, replies
from celery_reliable.ledger.scripts import names

_MAKING = threading.Lock()


class Answer:
    """The base of all answers.  Two with the same values are equal."""

    #: Its name on the wire and in logs.
    word: ClassVar[str] = ""
    __match_args__: ClassVar[tuple[str, ...]] = ()

    def __init__(self, *values: Any, **named: Any) -> None:
        self.__dict__.update(zip(self.__match_args__, values, strict=False), **named)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), *(vars(self)[name] for name in self.__match_args__)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in vars(self).items())})"


def made(word: str) -> type[Answer]:
    """Return the class of the replies of this *word*."""
    # Two classes of one word, each for a thread, would not know each other's answers.
    with _MAKING:
        return _made(word)


@cache
def _made(word: str) -> type[Answer]:
    name = "".join(part.capitalize() for part in word.split("_"))
    fields = tuple(one.name for one in replies()[word])
    return type(name, (Answer,), {"word": word, "__match_args__": fields, "__module__": __name__})


def __getattr__(name: str) -> Any:
    word = re.sub(r"(?<=.)([A-Z])", r"_\1", name).lower()
    script = word.removesuffix("_answer")
    if script != word and script in names():
        found: Any = reduce(or_, map(made, header(script).replies))
    elif word in replies():
        found = made(word)
    else:
        raise AttributeError(name)
    globals()[name] = found
    return found

"""What scripts answer: a class for each reply in their headers, and a union for each script.

`answers.pyi` lists them with their fields.  A class is called as its word: ``{"no_lease"}`` is
`NoLease`; the union of what ``claim`` answers is `ClaimAnswer`.
"""

from __future__ import annotations

import re
import threading
from dataclasses import make_dataclass
from functools import cache, reduce
from operator import or_
from typing import Any, ClassVar

from celery_reliable.ledger.scripts import header, names, replies

_MAKING = threading.Lock()


class Answer:
    """The base of all answers, which are dataclasses."""

    #: Its name on the wire and in logs.
    word: ClassVar[str] = ""


def made(word: str) -> type[Answer]:
    """Return the class of the replies of this *word*."""
    # Two classes of one word, each for a thread, would not know each other's answers.
    with _MAKING:
        return _made(word)


@cache
def _made(word: str) -> type[Answer]:
    name = "".join(part.capitalize() for part in word.split("_"))
    fields = [one.name for one in replies()[word]]
    about = {"word": word, "__module__": __name__}
    return make_dataclass(name, fields, bases=(Answer,), namespace=about, unsafe_hash=True)


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

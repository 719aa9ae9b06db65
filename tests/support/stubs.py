"""Writes what type checkers see of the ledger's scripts: ``python -m tests.support.stubs``.

The headers of the scripts are the truth; at run time calls and answers are made from them.
"""

from __future__ import annotations

from pathlib import Path

from celery_reliable.ledger.scripts import Named, header, names, replies
from tests.support.processes import REPOSITORY

FOLDER = REPOSITORY / "celery_reliable" / "ledger"
_TYPES = {"text": "str", "bytes": "str | bytes", "int": "int", "flag": "bool"}
#: Only who frees an object hears of these, and calls again.
_CALLED_AGAIN = frozenset({"troubled"})

_ANSWERS = '''\
"""What scripts answer, by their headers.  Written by ``python -m tests.support.stubs``."""

from dataclasses import dataclass
from typing import ClassVar, TypeAlias, final

class Answer:
    word: ClassVar[str]

def made(word: str) -> type[Answer]: ...

'''
_CALLS = '''\
"""The calls of scripts, by their headers.  Written by ``python -m tests.support.stubs``."""

# ruff: noqa: A002
from collections.abc import Sequence

from celery_reliable.ledger import answers
from celery_reliable.ledger.schema import Keys
from celery_reliable.ledger.transitions import Argument, Step

class Calls:
    keys: Keys
    def __init__(self, keys: Keys) -> None: ...
'''


def stubs() -> dict[Path, str]:
    """Return the text of each file."""
    classes = "".join(_class(word, fields) for word, fields in sorted(replies().items()))
    unions = "".join(f"{_camel(name)}Answer: TypeAlias = {_union(name)}\n" for name in names())
    calls = "".join(map(_call, names()))
    return {
        FOLDER / "answers.pyi": _ANSWERS + classes + unions,
        FOLDER / "calls.pyi": _CALLS + calls,
    }


def _camel(word: str) -> str:
    return "".join(part.capitalize() for part in word.split("_"))


def _class(word: str, fields: tuple[Named, ...]) -> str:
    lines = [f"    {one.name}: {_type_of_field(one)}\n" for one in fields]
    body = "\n" + "".join(lines) if fields else " ...\n"
    return f"@final\n@dataclass\nclass {_camel(word)}(Answer):{body}\n"


def _type_of_field(one: Named) -> str:
    if one.mark == "...":
        return "tuple[str, ...]"
    return _TYPES[one.kind] + (" | None" if one.mark == "?" else "")


def _union(name: str, of: str = "") -> str:
    return " | ".join(
        of + _camel(word) for word in header(name).replies if word not in _CALLED_AGAIN
    )


def _call(name: str) -> str:
    given = "".join(f"        {one.name}: {_type_of_argument(one)},\n" for one in _given(name))
    return (
        f"    def {name}(\n        self,\n        *,\n{given}"
        f"    ) -> Step[answers.{_camel(name)}Answer]: ...\n"
    )


def _given(name: str) -> list[Named]:
    return list(header(name).parameters.values())


def _type_of_argument(one: Named) -> str:
    if one.mark == "...":
        return "Sequence[Argument] = ()"
    if one.kind == "flag":
        return "bool = False"
    if one.kind in ("text", "bytes") and one.mark == "?":
        return f'{_TYPES[one.kind]} = ""'
    return _TYPES[one.kind] + (" | None = None" if one.mark else "")


if __name__ == "__main__":
    for path, text in stubs().items():
        path.write_text(text)

"""What the headers of scripts declare by name: keys, arguments and replies."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from celery_reliable.ledger.scripts import names, source

__all__ = ["Header", "Named", "header", "replies"]

_LINE = re.compile(r"^(KEYS|ARGV)\.(\w+)(\?|\+|\.\.\.)?(?:: (\w+))? *(\S*)", re.MULTILINE)
_RETURNS = re.compile(r"^Returns +(.*?)^Cost ", re.MULTILINE | re.DOTALL)
_REPLY = re.compile(r'\{"(\w+)"([^{}]*)\}')
_FIELD = re.compile(r",\s+(\w+)(\?|\.\.\.)?(?:: (\w+))?")
_REPEATED = re.compile(r"^Repeated +(\w+) -> (\w+)$", re.MULTILINE)


class Named(NamedTuple):
    """A key, an argument or a field of a reply.

    Attributes:
        mark: "?" for what may be left out, and is empty then; "+" for what is sent only if one of
            the arguments with a "+" or "..." is given; "..." for any number of them, the last.
        kind: of an argument or a field: "text", "bytes", "int", or "flag", which is "1" or "".
        pattern: of a key: its name in the namespace, with an argument in it, as in ``task:<id>``;
            ``<queue>`` alone is a whole key that the caller gives.
    """

    name: str
    mark: str
    kind: str
    pattern: str = ""

    @property
    def parameter(self) -> str:
        """The argument that is in a key's pattern; empty for none."""
        return self.pattern.partition("<")[2].rstrip(">")


@dataclass(frozen=True)
class Header:
    """The header of one script.

    Attributes:
        replies: the fields of each, by its word.
        repeated: if a call was sent more than once and the script answers with the first word, an
            earlier copy of the call has done what the second says.
    """

    keys: tuple[Named, ...]
    args: tuple[Named, ...]
    replies: dict[str, tuple[Named, ...]]
    repeated: tuple[str, str] | None

    @property
    def parameters(self) -> dict[str, Named]:
        """What a call is given, by name: arguments, and what only a key is made of."""
        found = {one.name: one for one in self.args}
        for key in self.keys:
            if key.mark == "...":
                found.setdefault(key.name, key)
            elif key.parameter:
                mark = "?" if key.mark == "+" else ""
                found.setdefault(key.parameter, Named(key.parameter, mark, "text"))
        return found

    @classmethod
    def of(cls, text: str) -> Header:
        """Read the header of a script's *text*."""
        text = text.partition("\n]]\n")[0]
        keys, args = [], []
        for of, name, mark, kind, pattern in _LINE.findall(text):
            if of == "KEYS":
                keys.append(Named(name, mark, "text", pattern))
            else:
                args.append(Named(name, mark, kind or "text"))
        returns, repeated = _RETURNS.search(f"{text}\n"), _REPEATED.search(text)
        replies = {
            word: tuple(
                Named(name, mark, kind or "text") for name, mark, kind in _FIELD.findall(all_)
            )
            for word, all_ in _REPLY.findall(returns[1] if returns else "")
        }
        again = (repeated[1], repeated[2]) if repeated else None
        return cls(tuple(keys), tuple(args), replies, again)

    @property
    def function(self) -> str:
        """The text of a function that makes a call of the script.

        ``step(begin, none, *, …)`` takes what the namespace's keys begin with, which is the first
        key of each call, a key that is never there, and what the header lists.  It is written out,
        as dataclasses write theirs: to go through the header for each call would take longer than
        all else that is done for it.
        """
        whole = next((one.name for one in self.args if one.mark in ("+", "...")), "")
        plus = [one for one in self.args if one.mark == "+"]
        is_whole = f"{whole} is not None" if plus else whole
        asked = ", ".join(_asked(one) for one in self.parameters.values())
        keys, args = _tuple(self.keys, _key, is_whole), _tuple(self.args, _argument, is_whole)
        return (
            f"def step(begin, none, *, {asked}):\n"
            f"    return Step(script, (begin, {keys[1:]}, {args})\n"
        )


def _asked(one: Named) -> str:
    left_out = {"flag": "False", "int": "None"}.get(one.kind, "''")
    values = {"...": "()", "+": "None", "?": left_out}
    default = "False" if one.kind == "flag" else values.get(one.mark, "")
    return f"{one.name}={default}" if default else one.name


def _tuple(all_: Iterable[Named], text_of: Callable[[Named], str], is_whole: str) -> str:
    """Return the text of a tuple in which what has a "+" is there only if *is_whole*."""
    texts = {"": "", "+": "", "...": ""}
    for one in all_:
        texts[one.mark.strip("?")] += f"{'*' * (one.mark == '...')}{text_of(one)}, "
    more = f"*(({texts['+']}) if {is_whole} else ()), " if texts["+"] else ""
    return f"({texts['']}{more}{texts['...']})"


def _argument(one: Named) -> str:
    if one.kind == "flag":
        return f"'1' if {one.name} else ''"
    if one.kind == "int" and one.mark == "?":
        return f"'' if {one.name} is None else {one.name}"
    return one.name


def _key(one: Named) -> str:
    before, has_value, _ = one.pattern.partition("<")
    if one.mark == "...":
        return one.name
    if not has_value:
        return f"begin + {before!r}"
    key = f"begin + {before!r} + {one.parameter}" if before else one.parameter
    # A message may name no id, and what is noted of it must not stand in the place of nothing.
    return key if before == "task:" else f"{key} if {one.parameter} else none"


@cache
def header(name: str) -> Header:
    """Return the header of a script of the ledger; raises FileNotFoundError if there is none."""
    return Header.of(source(name))


@cache
def replies() -> dict[str, tuple[Named, ...]]:
    """Return the fields of each reply of all scripts: one word always has the same."""
    return {word: fields for name in names() for word, fields in header(name).replies.items()}

"""The Lua files of this package, loaded as package resources, and what their headers declare by
name: keys, arguments and replies.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from textwrap import indent
from typing import NamedTuple

from celery_reliable.redis_io import Script, by_position

__all__ = [
    "FUNCTIONS",
    "Header",
    "Named",
    "Script",
    "composed",
    "header",
    "inside",
    "names",
    "replies",
    "script",
    "source",
    "together",
]

#: The file of the functions that scripts share.
FUNCTIONS = "functions"
_FUNCTION = re.compile(r"^local function (\w+)\(.*?^end\n", re.MULTILINE | re.DOTALL)
_NOW = "local now_ms, now_us = clock()\n"
#: A full server runs the rest of a script that has removed something, even if that was not there.
_REMOVAL = "redis.call('HDEL', KEYS.ledger, '')\n"

#: Two scripts as one.  Each has the keys and arguments that are its own; the last two arguments are
#: how many of either the first one has.
_TOGETHER = """\
local function first(KEYS, ARGV)
{first}
end
local function second(KEYS, ARGV)
{second}
end
local keys, args = tonumber(ARGV[#ARGV - 1]), tonumber(ARGV[#ARGV])
local reply = first({{unpack(KEYS, 1, keys)}}, {{unpack(ARGV, 1, args)}})
local more = second({{unpack(KEYS, keys + 1)}}, {{unpack(ARGV, args + 1, #ARGV - 2)}})
-- A word by itself, as the server writes each part of a nested reply on its own.
return {{#reply == 1 and reply[1] or reply, more}}
"""

_LINE = re.compile(r"^(KEYS|ARGV)\.(\w+)(\?|\+|\.\.\.)?(?:: (\w+))? *(\S*)", re.MULTILINE)
_RETURNS = re.compile(r"^Returns +(.*?)^Cost ", re.MULTILINE | re.DOTALL)
_REPLY = re.compile(r'\{"(\w+)"([^{}]*)\}')
_FIELD = re.compile(r",\s+(\w+)(\?|\.\.\.)?(?:: (\w+))?")
_REPEATED = re.compile(r"^Repeated +(\w+) -> (\w+)$", re.MULTILINE)


def source(name: str) -> str:
    """Return the file of the transition *name*; raises FileNotFoundError if there is none."""
    return _file(name)


def _file(name: str) -> str:
    return resources.files(__package__).joinpath("lua").joinpath(f"{name}.lua").read_text("utf-8")


@cache
def script(name: str) -> Script:
    """Return the transition called *name*; raises FileNotFoundError for a name without a file."""
    return Script.of(name, composed(source(name), _file(FUNCTIONS)))


def composed(text: str, functions: str) -> str:
    """Return a script of the ledger as Redis takes it.

    Its first key is what all keys of the namespace begin with (``KEYS.ledger``).  Before its body
    stand those of the *functions* that it calls.  A body that uses ``now_ms`` or ``now_us`` is told
    the ledger's time as it begins, unless it calls ``clock()`` itself.  It begins to write with a
    removal, unless its header says under ``Full`` what becomes of it on a full server.
    """
    header, end, body = text.partition("\n]]\n")
    if re.search(r"\bnow_[mu]s\b", body) and "clock()" not in body:
        body = _NOW + body
    if not re.search(r"^Full ", header, re.MULTILINE):
        body = _REMOVAL + body
    found = {one[1]: one[0] for one in _FUNCTION.finditer(functions)}
    return by_position(header + end + _called(body, found) + body, "ledger")


def _called(body: str, functions: dict[str, str]) -> str:
    """Return those of the *functions* that a body calls.  Each has in itself those that it calls,
    so that what a script does not come to costs nothing: each is made anew for each call.
    """
    texts = []
    for name, text in functions.items():
        if re.search(rf"\b{name}\(", body):
            first, rest = text.split("\n", 1)
            texts.append(f"{first}\n{indent(_called(rest, functions), '  ')}{rest}")
    return "".join(texts)


@cache
def names() -> list[str]:
    """Return the names of all transitions, sorted."""
    files = resources.files(__package__).joinpath("lua").iterdir()
    found = sorted(f.name.removesuffix(".lua") for f in files if f.name.endswith(".lua"))
    return [name for name in found if name != FUNCTIONS]


@cache
def together(first: Script, second: Script) -> Script:
    """Return two transitions as one script: nothing of another's comes between them."""
    text = _TOGETHER.format(first=first.text, second=second.text)
    return Script.of(first.name, text)


@cache
def inside(inner: Script, name: str, text: str) -> Script:
    """Return the script *text*, called *name*, which calls *inner* as a function of that name."""
    text = f"local function {inner.name}(KEYS, ARGV)\n{inner.text}\nend\n{text}"
    return Script.of(name, text)


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

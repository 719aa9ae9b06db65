"""The Lua files of this package, loaded as package resources."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from textwrap import indent

from celery_reliable.redis_io import Script, by_position

__all__ = ["FUNCTIONS", "Script", "composed", "inside", "names", "script", "source", "together"]

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

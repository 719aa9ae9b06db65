"""The Lua files of this package, loaded as package resources."""

from __future__ import annotations

from functools import cache
from importlib import resources

from celery_reliable.redis_io import Script, by_position

__all__ = ["Script", "inside", "names", "script", "source", "together"]

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
    return resources.files(__package__).joinpath("lua").joinpath(f"{name}.lua").read_text("utf-8")


@cache
def script(name: str) -> Script:
    """Return the transition called *name*; raises FileNotFoundError for a name without a file."""
    return Script.of(name, by_position(source(name)))


@cache
def names() -> list[str]:
    """Return the names of all transitions, sorted."""
    files = resources.files(__package__).joinpath("lua").iterdir()
    return sorted(f.name.removesuffix(".lua") for f in files if f.name.endswith(".lua"))


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

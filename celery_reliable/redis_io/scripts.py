"""Scripts for Redis, whose headers name the keys and arguments that the bodies use."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

__all__ = ["Script", "by_position"]

_LISTED = re.compile(r"^(KEYS|ARGV)\.(\w+)", re.MULTILINE)
_USED = re.compile(r"\b(KEYS|ARGV|FIRST)\.(\w+)")


@dataclass(frozen=True)
class Script:
    """A text, and the digest by which a server knows it."""

    name: str
    text: str
    sha: str

    @classmethod
    def of(cls, name: str, text: str) -> Script:
        """Return the script of this text."""
        return cls(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


def by_position(text: str, *before: str) -> str:
    """Return a script as Redis takes it, with ``KEYS[1]`` for ``KEYS.record``, say.

    The header lists keys and arguments in the order in which they are sent; the keys *before* those
    are in every header.  ``FIRST.members`` is the number of the first of those of which there may
    be any number.  Raises KeyError where the body has a name that the header does not list.
    """
    header, end, body = text.partition("\n]]\n")
    at: dict[tuple[str, str], str] = {}
    for kind, names in (("KEYS", list(before)), ("ARGV", [])):
        names += [name for of, name in _LISTED.findall(header) if of == kind]
        for number, name in enumerate(names, 1):
            at[kind, name], at["FIRST", name] = f"{kind}[{number}]", str(number)
    return header + end + _USED.sub(lambda found: at[found[1], found[2]], body)

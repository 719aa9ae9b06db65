"""The Lua files of this package, loaded as package resources."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources

__all__ = ["Script", "names", "script"]


@dataclass(frozen=True)
class Script:
    """One transition: its text and the digest by which the server knows it."""

    name: str
    text: str
    sha: str


@cache
def script(name: str) -> Script:
    """Return the transition called *name*; raises FileNotFoundError for a name without a file."""
    text = resources.files(__package__).joinpath("lua").joinpath(f"{name}.lua").read_text("utf-8")
    return Script(name, text, hashlib.sha1(text.encode()).hexdigest())


def names() -> list[str]:
    """Return the names of all transitions, sorted."""
    files = resources.files(__package__).joinpath("lua").iterdir()
    return sorted(f.name.removesuffix(".lua") for f in files if f.name.endswith(".lua"))

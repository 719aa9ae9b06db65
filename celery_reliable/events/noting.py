"""Notes in the ledger of what happened, for people who ask later.

Who keeps them is above the events, and says so when it is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["Keep", "keep", "set_keeper"]

#: Keeps a note: of an app, the event's name, what it is counted apart by, and its fields.
Keep = Callable[[Any, str, str, Mapping[str, Any]], None]

_keep: Keep | None = None


def set_keeper(keep: Keep | None) -> Keep | None:
    """Let notes be kept by *keep* from now on, or not at all; return who did it before."""
    global _keep
    before, _keep = _keep, keep
    return before


def keep(app: Any, kind: str, of: str, about: Mapping[str, Any]) -> None:
    """Keep a note, if somebody does.  Raises whatever that raises."""
    if _keep is not None:
        _keep(app, kind, of, about)

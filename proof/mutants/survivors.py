"""The mutants that may live, each with the reason."""

from __future__ import annotations

__all__ = ["SURVIVORS"]

SURVIVORS: dict[str, str] = {}

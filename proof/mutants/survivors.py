"""The mutants that may live, each with the reason."""

from __future__ import annotations

__all__ = ["OF_ORDER", "OF_SCRIPTS"]

OF_SCRIPTS: dict[str, str] = {}

OF_ORDER: dict[str, str] = {}

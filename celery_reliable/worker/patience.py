"""How long the main loop, which serves all children, waits for the ledger."""

from __future__ import annotations

__all__ = ["PATIENCE_SECONDS"]

#: What it could not tell in this time it tells later, or a look at claims without a process finds.
PATIENCE_SECONDS = 1.0

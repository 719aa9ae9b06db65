"""Whether the scripts on a live server do what the model says; nothing has to be recorded."""

from __future__ import annotations

from proof.live.verifying import Verified, verify

__all__ = ["Verified", "verify"]

"""The release.  This is the one place that names it."""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "1.0.0rc1"

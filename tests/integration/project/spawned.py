"""The project's app where billiard starts processes as it does by default on macOS."""

from __future__ import annotations

import os

import billiard

# In a process of the project, not in the tests' own.
if "READY_KEY" in os.environ:
    billiard.set_start_method("spawn", force=True)
    from tests.integration.project.app import app as app

    # What the error says to do.
    if os.environ.get("FORCE_FORK"):
        billiard.set_start_method("fork", force=True)

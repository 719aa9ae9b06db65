"""The order of sets, which differs from one process to the next unless it is fixed before."""

from __future__ import annotations

import os
import sys


def fix_order_of_sets(module: str) -> None:
    """Begin *module* again with a fixed one, unless this process has it."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        os.execve(sys.executable, [sys.executable, "-m", module, *sys.argv[1:]], environment)

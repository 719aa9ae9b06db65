"""Runs of the driver in processes of their own, since it changes what modules are, and in each of
which sets have the same order.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from proof.stopping import end_at_signals

_ROOT = Path(__file__).parents[3]


def run(module: str, *words: object) -> subprocess.CompletedProcess[str]:
    """Run a module of the driver; what it prints is all in *stdout*."""
    return subprocess.run(
        [sys.executable, "-m", module, *map(str, words)], cwd=_ROOT,
        env={**os.environ, "PYTHONHASHSEED": "0"}, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip


def fix_order_of_sets(module: str) -> None:
    """Begin *module* again with a fixed one, unless this process has it."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        os.execve(sys.executable, [sys.executable, "-m", module, *sys.argv[1:]], environment)


def end_with(main: Callable[[], int]) -> NoReturn:
    """Run a command; what kombu does at the end it would do to a server that is gone."""
    end_at_signals()
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

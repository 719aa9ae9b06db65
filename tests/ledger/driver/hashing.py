"""The order of sets, which differs from one process to the next unless it is fixed before."""

from __future__ import annotations

import os
import sys

#: Not from the package, which is not to be imported before mutants are put into it.
_TRACE_VARIABLE = "CELERY_RELIABLE_TRACE"


def fix_order_of_sets(module: str) -> None:
    """Begin *module* again with a fixed one, unless this process has it.

    No world is recorded, whatever the options of the tests are: its time is not the server's.
    """
    if os.environ.get("PYTHONHASHSEED") != "0" or _TRACE_VARIABLE in os.environ:
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        environment.pop(_TRACE_VARIABLE, None)
        os.execve(sys.executable, [sys.executable, "-m", module, *sys.argv[1:]], environment)

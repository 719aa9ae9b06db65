"""A real worker of the user's app, as a process of its own: ``python -m`` this module.

What it is told stands in the environment, as JSON.  A test that wants to kill it makes a file in
its folder that is named after a task's id and a moment: the process that comes there kills.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from celery.app.utils import find_app

from celery_reliable.contrib.testing.private_ledger import WORKER_VARIABLE
from celery_reliable.options import is_reliable

__all__ = ["main"]


def main() -> None:
    """Run the worker until somebody ends it."""
    told = json.loads(os.environ[WORKER_VARIABLE])
    # Before anything of the user's is imported.
    sys.path[:] = told["paths"]
    app = find_app(told["app"])
    app.conf.update(told["conf"])
    app.loader.import_default_modules()
    app.finalize()
    for alias, name in told["databases"].items():
        from django.db import connections

        # The tests' own database, and not that which the settings name.
        connections[alias].settings_dict["NAME"] = name
    for task in app.tasks.values():
        if is_reliable(task):
            _let_die(task, Path(told["folder"]))
    app.worker_main(
        [
            "worker",
            *("--pool", "prefork", "--concurrency", "1", "--loglevel", "INFO"),
            *("--without-gossip", "--without-mingle", "--hostname", told["name"]),
        ]
    )


def _let_die(task: Any, folder: Path) -> None:
    """Let a task of this process kill where a test has asked for it."""
    body = task.run

    @functools.wraps(body)
    def run(*args: Any, **kwargs: Any) -> Any:
        _die_if_asked(folder / f"{task.request.id}.begins")
        found = body(*args, **kwargs)
        _die_if_asked(folder / f"{task.request.id}.ended")
        return found

    task.run = run


def _die_if_asked(asked: Path) -> None:
    if asked.exists():
        whom = asked.read_text()
        # The next attempt passes.
        asked.unlink()
        # The worker and its pool processes are one group, which 0 means.
        os.kill(os.getpid() if whom == "child" else 0, signal.SIGKILL)


if __name__ == "__main__":
    main()

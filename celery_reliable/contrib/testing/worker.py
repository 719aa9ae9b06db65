"""A real worker of the user's app, as a process of its own: ``python -m`` this module.

What it is told stands in the environment, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from celery.app.utils import find_app

from celery_reliable.contrib.testing.held import WORKER_VARIABLE, hold
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
    if told["databases"]:
        from django.db import connections

        # The tests' own databases, and not those that the settings name.
        for alias, name in told["databases"].items():
            connections[alias].settings_dict["NAME"] = name
    for task in app.tasks.values():
        if is_reliable(task):
            hold(task, Path(told["folder"]))
    app.worker_main(
        [
            "worker",
            *("--pool", "prefork", "--concurrency", "1", "--loglevel", "INFO"),
            *("--without-gossip", "--without-mingle", "--hostname", told["name"]),
        ]
    )


if __name__ == "__main__":
    main()

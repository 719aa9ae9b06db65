"""The app of one contender, in a process of its own: what a base puts into an app stays there."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from celery import Celery
from celery.signals import worker_ready
from celery.utils.imports import symbol_by_name

from benchmarks.contenders import CONTENDERS

#: What a short task takes.
SHORT_SECONDS = 0.005

_contender = CONTENDERS[os.environ["BENCH_CONTENDER"]]

app = Celery("benchmark", broker=os.environ["BROKER_URL"], backend=os.environ["RESULT_URL"])
app.conf.update(_contender.settings(os.environ["LOCK_URL"]))

_options = {"base": symbol_by_name(_contender.base), **_contender.options}


@app.task(name="benchmark.noop", **_options)
def noop(number: int, body: str) -> float:
    """Do nothing, and tell when: by a clock that all processes of a host share."""
    return time.monotonic()


@app.task(name="benchmark.short", **_options)
def short(number: int, body: str) -> None:
    """Wait for something that takes as long as a short query."""
    time.sleep(SHORT_SECONDS)


@app.task(name="benchmark.hold", **_options)
def hold(number: int, body: str) -> None:
    """Show that it runs, by a file, and run until the file is taken away."""
    shown = Path(os.environ["BENCH_FOLDER"], f"hold-{number}")
    shown.touch()
    while shown.exists():
        time.sleep(0.05)


@worker_ready.connect
def show_that_it_is_ready(**kwargs: Any) -> None:
    """Write the file that the rig waits for."""
    Path(os.environ["READY_FILE"]).touch()

"""``python -m celery_reliable.contrib.drill``: a process of a drill.

What it is told stands in the environment, as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from celery import Celery
from celery.app.utils import find_app
from celery.signals import before_task_publish, worker_ready

from celery_reliable.contrib.drill.tasks import note, register
from celery_reliable.operations.drills import TOLD_VARIABLE

__all__ = ["main"]


#: So often it is looked whether the drill goes on.
_LOOK_SECONDS = 1.0


def main() -> None:
    """Work, or publish."""
    told = json.loads(os.environ[TOLD_VARIABLE])
    threading.Thread(target=_die_with, args=(told["drill_pid"],), daemon=True).start()
    # Before anything of the user's is imported.
    sys.path[:] = told["paths"]
    app = find_app(told["app"])
    app.loader.import_default_modules()
    app.finalize()
    # Its queue is in nobody's settings.
    app.conf.task_create_missing_queues = True
    register(app)
    folder = Path(told["folder"])
    if told["does"] == "work":
        _work(app, folder, told)
    else:
        _publish(app, folder, told)


def _die_with(pid: int) -> None:
    """End this session when the drill was killed: nobody else would."""
    while os.getppid() == pid:
        time.sleep(_LOOK_SECONDS)
    os.killpg(0, signal.SIGKILL)


def _work(app: Celery, folder: Path, told: dict[str, Any]) -> None:
    def tell(**_: Any) -> None:
        (folder / f"{told['name']}.ready").touch()

    worker_ready.connect(tell)
    app.worker_main(
        [
            "worker",
            *("--pool", "prefork", "--concurrency", str(told["concurrency"])),
            *("--loglevel", "INFO", "--without-gossip", "--without-mingle"),
            *("--hostname", f"{told['name']}@%h", "--queues", told["queue"]),
        ]
    )


def _publish(app: Celery, folder: Path, told: dict[str, Any]) -> None:
    def before(headers: dict[str, Any], **_: Any) -> None:
        note(folder, "publish", task=headers["id"])

    before_task_publish.connect(before)
    task = app.tasks[f"reliable_drill.{told['task']}"]
    for number in range(told["count"]):
        if number:
            time.sleep(told["pause_seconds"])
        try:
            result = task.apply_async((str(folder), *told["arguments"]), queue=told["queue"])
        except Exception as exc:
            # Of what was refused nothing is promised.
            sys.stderr.write(f"not published: {type(exc).__name__}: {exc}\n")
        else:
            note(folder, "published", task=result.id)


if __name__ == "__main__":
    main()

"""A process that calls one task of one object, from several threads, and says what it got.

Arguments: the task's name, the object, how many threads, how many calls of each, and the steps of
the task.  The project's settings come from the environment, as in workers.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor

from tests.integration.project.factory import Settings, create_app


def main() -> None:
    name, object_id, threads, calls, *steps = sys.argv[1:]
    app = create_app(Settings.from_environ(os.environ))
    task = app.tasks[f"project.{name}"]

    def call(_: int) -> None:
        result = task.apply_async((object_id, steps or ["finish"]))
        app.effects.client.rpush("called", result.id)

    with ThreadPoolExecutor(int(threads)) as pool:
        list(pool.map(call, range(int(threads) * int(calls))))


if __name__ == "__main__":
    main()

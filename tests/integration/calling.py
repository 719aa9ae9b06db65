"""A process that calls one task from several threads, and says what it got.

Arguments: the task's name, its arguments as JSON, how many threads, and how many calls of each.
The project's settings come from the environment, as in workers.
"""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor

from tests.integration.project.factory import Settings, create_app


def main() -> None:
    name, arguments, threads, calls = sys.argv[1:]
    app = create_app(Settings.from_environ(os.environ))
    task = app.tasks[f"project.{name}"]

    def call(_: int) -> None:
        result = task.apply_async(json.loads(arguments))
        app.effects.client.rpush("called", result.id)

    with ThreadPoolExecutor(int(threads)) as pool:
        list(pool.map(call, range(int(threads) * int(calls))))


if __name__ == "__main__":
    main()

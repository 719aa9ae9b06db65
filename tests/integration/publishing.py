"""A publisher to be killed: publishes one task after the other, and says which it has published.

Arguments: how many.  The project's settings come from the environment, as in workers.
"""

from __future__ import annotations

import os
import sys

from tests.integration.project.factory import Settings, create_app


def main() -> None:
    app = create_app(Settings.from_environ(os.environ))
    task = app.tasks["project.work"]
    for _ in range(int(sys.argv[1])):
        result = task.apply_async((0,), ignore_result=True)
        app.effects.client.rpush("published", result.id)


if __name__ == "__main__":
    main()

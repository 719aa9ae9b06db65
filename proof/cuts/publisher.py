"""The process that publishes, or that replays dead letters: `python -m proof.cuts.publisher WHAT`.

A call that raises is made again, as its caller would; what was published then may run, too.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from celery.signals import before_task_publish

from celery_reliable.app import reliable_of
from celery_reliable.exceptions import UnknownDeadLetter
from celery_reliable.operations import DeadLetters
from proof.cuts.log import Log
from proof.cuts.scenarios import PARTS, SCENARIOS
from tests.integration.project.factory import Settings, create_app

_MOST_TRIES = 3


def main() -> None:
    """Do what is asked for once, and again if it raises."""
    what = sys.argv[1]
    app = create_app(Settings.from_environ(os.environ))
    log = Log(app.effects.client)

    def before(headers: dict[str, Any], **_: Any) -> None:
        log.publish(headers["id"])

    before_task_publish.connect(before)
    for number in range(1, _MOST_TRIES + 1):
        try:
            if what == "replay":
                _replay(app, log)
            else:
                publish = PARTS.get(what) or SCENARIOS[what].publish
                publish(app, log)
            break
        except Exception as error:
            print(f"try {number}: {type(error).__name__}: {error}", flush=True)
            if number == _MOST_TRIES:
                raise
    reliable_of(app).close()


def _replay(app: Any, log: Log) -> None:
    letters = DeadLetters(app)
    for letter in letters.list():
        log.reopened(letter.task_id)
        try:
            letters.replay(letter.task_id, by="the proof")
        except UnknownDeadLetter:
            continue


if __name__ == "__main__":
    main()

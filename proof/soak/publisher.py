"""Publishes all the time, and has dead letters run again: `python -m proof.soak.publisher SEED`.

It ends when it is told to.  A call that raises is not made again: nobody was told that anything is
published.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections import Counter
from typing import Any

from kombu.exceptions import OperationalError

from celery_reliable.app import reliable_of
from celery_reliable.exceptions import ReliableError, UnknownDeadLetter
from celery_reliable.operations import DeadLetters
from proof.cuts.log import Log
from proof.soak.app import create_soak_app
from proof.soak.load import Load
from tests.integration.project.factory import Settings

__all__ = ["REFUSED", "STOP", "replay"]

#: The gate that ends it.
STOP = "stop"
#: Where it counts the calls that raised, by what they raised.
REFUSED = "refused"
_PER_SECOND = 4.0
_LONGEST_PAUSE_SECONDS = 1.0
_REPLAY_SECONDS = 3.0
#: By then who listens to results has heard of a failure that was stored as its letter was buried.
_HEARD_MS = 1_000


def main() -> None:
    """Publish until the gate opens."""
    seed = sys.argv[1]
    app = create_soak_app(Settings.from_environ(os.environ))
    log, dice = Log(app.effects.client), random.Random(f"pauses {seed}")
    load = Load(app, log, seed)
    refused: Counter[str] = Counter()
    replayed_at = time.monotonic()
    while not app.effects.is_open(STOP):
        try:
            load.publish()
            if time.monotonic() - replayed_at > _REPLAY_SECONDS:
                replayed_at = time.monotonic()
                replay(app, log)
        except Exception as error:
            print(f"{type(error).__name__}: {error}", flush=True)
            refused[_kind(error)] += 1
            app.effects.client.hincrby(REFUSED, _kind(error), 1)
        # Arrivals by chance (Poisson's).
        time.sleep(min(dice.expovariate(_PER_SECOND), _LONGEST_PAUSE_SECONDS))
    reliable_of(app).close()


def _kind(error: Exception) -> str:
    """Return what an error is counted as: with what it says, where nobody would know it else."""
    name = type(error).__name__
    return name if isinstance(error, ReliableError | OperationalError) else f"{name}: {error}"


def replay(app: Any, log: Log) -> None:
    """Have every dead letter run again of whose failure everybody has heard: else the word of it
    may come after the replay, from who has yet to tell Celery, or to who listens and is late.
    """
    letters = DeadLetters(app)
    now_ms = reliable_of(app).ledger.workers.time_ms()
    for letter in letters.list():
        # By a clock that was set back since, it lies in the future.
        if letter.is_owed or 0 <= now_ms - letter.buried_ms < _HEARD_MS:
            continue
        log.reopened(letter.task_id)
        try:
            letters.replay(letter.task_id, by="the soak")
        except UnknownDeadLetter:
            continue


if __name__ == "__main__":
    main()

"""The calls of all scripts by their names; `calls.pyi` says what each takes and answers."""

from __future__ import annotations

from functools import partial
from typing import Any

from celery_reliable.ledger.transitions import transition


class Calls:
    """Makes steps: ``calls.touch(id="a", attempt=1, time_to_run_ms=500, token="t")``."""

    def __init__(self, keys: Any) -> None:
        self.keys = keys

    def __getattr__(self, name: str) -> Any:
        try:
            step = transition(name).step
        except FileNotFoundError as exc:
            raise AttributeError(name) from exc
        call = partial(step, self.keys.begin, self.keys.none)
        self.__dict__[name] = call
        return call

"""Tasks published at a steady rate while a test does something else."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

JOIN_SECONDS = 30.0


class Load:
    """Calls `publish` so many times a second, in a thread of its own, from `with` to its end.

    Whoever falls behind catches up, so that the rate is that of the whole time. What `publish`
    raises ends the load, and is raised again at the end of `with`.
    """

    def __init__(self, publish: Callable[[], str], per_second: float) -> None:
        self._publish = publish
        self._per_second = per_second
        self._stop = Event()
        self._thread = ThreadPoolExecutor(1)
        self.ids: list[str] = []

    def __enter__(self) -> Self:
        self._load = self._thread.submit(self._run)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stop.set()
        raised = self._load.exception(JOIN_SECONDS)
        self._thread.shutdown()
        if kind is None and raised is not None:
            raise raised

    def _run(self) -> None:
        began_at = time.monotonic()
        while not self._stop.wait(began_at + len(self.ids) / self._per_second - time.monotonic()):
            self.ids.append(self._publish())

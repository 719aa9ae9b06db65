"""Tasks published at a steady rate while a test does something else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
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
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self.ids: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join(JOIN_SECONDS)
        if error is None and self._error is not None:
            raise self._error
        assert not self._thread.is_alive()

    def _run(self) -> None:
        began_at = time.monotonic()
        try:
            while not self._stop.wait(self._seconds_ahead(began_at)):
                self.ids.append(self._publish())
        except BaseException as error:
            self._error = error

    def _seconds_ahead(self, began_at: float) -> float:
        return max(0.0, began_at + len(self.ids) / self._per_second - time.monotonic())

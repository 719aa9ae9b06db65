"""A Redis server whose clock can be set while it runs, by libfaketime."""

from __future__ import annotations

import glob
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

#: What a Python process under it needs in its PYTHONPATH.
SKEWED_PYTHON = Path(__file__).parent / "skewed"
_PLACES = ("/usr/lib/*/faketime/libfaketime.so.1", "/usr/lib*/faketime/libfaketime.so.1")


def faketime_library() -> str | None:
    """The library, where Debian and Fedora put it; None where it is not installed."""
    return next((found for place in _PLACES for found in sorted(glob.glob(place))), None)


class Clock:
    """A clock that can be set, for processes that are started with its environment.

    It is in a file.  They measure durations as ever, but with *is_cached* they look into the file
    once a second only: one that asks for the time often would do nothing else.
    """

    def __init__(self, path: Path, library: str, *, is_cached: bool = False) -> None:
        self._path = path
        how_often = {"FAKETIME_CACHE_DURATION": "1"} if is_cached else {"FAKETIME_NO_CACHE": "1"}
        self.environ = {
            "LD_PRELOAD": library,
            "FAKETIME_TIMESTAMP_FILE": str(path),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            **how_often,
        }
        self.set_off(0)

    def set_off(self, seconds: int) -> None:
        """Let it be so far from the host's, from now on."""
        new = self._path.with_suffix(".new")
        new.write_text(f"{seconds:+d}\n")
        new.replace(self._path)


class SteppingServer(RedisServer):
    """A server that runs by a clock of its own; durations it measures as ever."""

    def __init__(
        self, directory: Path, library: str, options: Mapping[str, str] | None = None
    ) -> None:
        self._clock = Clock(directory / "offset", library)
        super().__init__(directory, options, environ=self._clock.environ)

    def set_off(self, seconds: int) -> None:
        """Let its clock be so far from the host's, from now on; Valkey needs some milliseconds."""
        self._clock.set_off(seconds)
        if self.is_running and not self._frozen:
            wait_for(lambda: self._is_off(seconds), 15, "the clock of the server")

    def _is_off(self, seconds: int) -> bool:
        with self.client() as client:
            before = time.time()
            told: Any = client.eval("return redis.call('TIME')", 0)
            now = int(told[0]) + int(told[1]) / 1e6 - seconds
            return before - 0.1 < now < time.time() + 0.1

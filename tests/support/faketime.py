"""A Redis server whose clock can be set while it runs, by libfaketime."""

from __future__ import annotations

import glob
from pathlib import Path

from tests.support.redis_server import RedisServer

__all__ = ["SteppingServer", "faketime_library"]

_PLACES = ("/usr/lib/*/faketime/libfaketime.so.1", "/usr/lib*/faketime/libfaketime.so.1")


def faketime_library() -> str | None:
    """The library, where Debian and Fedora put it; None where it is not installed."""
    return next((found for place in _PLACES for found in sorted(glob.glob(place))), None)


class SteppingServer(RedisServer):
    """A server that runs by a clock of its own; durations it measures as ever."""

    def __init__(self, directory: Path, library: str) -> None:
        self._offset = directory / "offset"
        environ = {
            "LD_PRELOAD": library,
            "FAKETIME_TIMESTAMP_FILE": str(self._offset),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        super().__init__(directory, environ=environ)
        self.set_off(0)

    def set_off(self, seconds: int) -> None:
        """Let its clock be so far from the host's, from now on."""
        new = self._offset.with_suffix(".new")
        new.write_text(f"{seconds:+d}\n")
        new.replace(self._offset)

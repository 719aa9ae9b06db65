"""Stands for an archive outside, which lets so many connect at a time and refuses all others."""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from django.conf import settings

__all__ = ["CONNECTIONS", "ArchiveRefuses", "put"]

#: So many its operator allows us.
CONNECTIONS = 2
_SECONDS = 0.2


class ArchiveRefuses(Exception):
    """There are as many connections as it allows."""


def put(name: str, findings: dict[str, Any]) -> None:
    """Store findings under a name; raises ArchiveRefuses."""
    folder = Path(settings.DOCUMENT_ARCHIVE)
    folder.mkdir(parents=True, exist_ok=True)
    with _connected(folder):
        time.sleep(_SECONDS)
        (folder / f"{name}.json").write_text(json.dumps(findings))


@contextmanager
def _connected(folder: Path) -> Iterator[None]:
    # The connection of a process that is killed ends with it, as the lock of a file does.
    with ExitStack() as stack:
        for number in range(CONNECTIONS):
            connection = stack.enter_context((folder / f"connection-{number}").open("w"))
            try:
                fcntl.flock(connection, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield
            return
        raise ArchiveRefuses(f"it allows {CONNECTIONS} connections")

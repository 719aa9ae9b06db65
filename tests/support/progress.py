"""What a long run has found so far, in a file, so that another run goes on from there."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any


class Progress:
    """Lines of JSON.  Several threads and processes may add to one file; without one it is kept
    nowhere.
    """

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._lock = threading.Lock()
        lines = file.read_text().splitlines() if file is not None and file.exists() else []
        #: What was there when it was opened.
        self.rows: list[Any] = [json.loads(line) for line in lines]

    def add(self, row: Any) -> None:
        """Keep a row, which JSON can write."""
        if self._file is not None:
            with self._lock, self._file.open("a") as lines:
                lines.write(json.dumps(row) + "\n")

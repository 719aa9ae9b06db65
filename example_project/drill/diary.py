"""What happened, read from the example project's database."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Document:
    """One row of the project's documents."""

    pk: int
    name: str
    status: str
    task_id: str
    attempt: int
    readability: float | None
    grade: str

    @property
    def is_checked(self) -> bool:
        """Whether the findings are written."""
        return self.status == "succeeded"


@dataclass(frozen=True)
class Run:
    """One run of a check; times in seconds since the epoch, by this machine's clock."""

    pk: int
    document: int
    task_id: str
    attempt: int
    worker: str
    pid: int
    started: float
    ended: float | None
    outcome: str


@dataclass(frozen=True)
class Diary:
    """The documents and the runs at one moment."""

    documents: tuple[Document, ...] = ()
    runs: tuple[Run, ...] = ()

    def document(self, pk: int) -> Document:
        """Return the document with this primary key."""
        return next(document for document in self.documents if document.pk == pk)

    def runs_of(self, document: int) -> list[Run]:
        """Return the runs of one document, in the order of their start."""
        return [run for run in self.runs if run.document == document]

    def open_runs(self, worker: str | None = None) -> list[Run]:
        """Return the runs of which no end is written, of one worker or of all."""
        return [run for run in self.runs if run.ended is None and worker in (None, run.worker)]

    def run_after(self, run: Run) -> Run | None:
        """Return the first run of the same task that began after this one."""
        later = [
            other
            for other in self.runs
            if other.task_id == run.task_id and (other.started, other.pk) > (run.started, run.pk)
        ]
        return later[0] if later else None


def _seconds(stored: str | None) -> Any:
    """Turn Django's text for a time in SQLite, which is in UTC, into seconds; None stays None."""
    if stored is None:
        return None
    return datetime.fromisoformat(stored).replace(tzinfo=timezone.utc).timestamp()


def read_diary(database: Path) -> Diary:
    """Read all documents and runs; an empty diary while there is no database yet."""
    if not database.exists():
        return Diary()
    connection = sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True, timeout=10)
    try:
        connection.execute("BEGIN")
        documents = connection.execute(
            "SELECT id, name, task_status, task_id, task_attempt, readability, grade"
            " FROM documents_document ORDER BY id"
        ).fetchall()
        runs = connection.execute(
            "SELECT id, document_id, task_id, attempt, worker, pid, started_at, ended_at, outcome"
            " FROM documents_run ORDER BY started_at, id"
        ).fetchall()
    except sqlite3.OperationalError as error:
        # Neither are there before the migrations are.
        if "no such table" in str(error) or "no such column" in str(error):
            return Diary()
        raise
    finally:
        connection.close()
    return Diary(
        documents=tuple(Document(*row) for row in documents),
        runs=tuple(
            Run(*row[:6], *(_seconds(stored) for stored in row[6:8]), row[8]) for row in runs
        ),
    )

"""Which processes of a pool are idle, so that it may end them as it shrinks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from celery_reliable.compat.processes import pool_of_lives
from celery_reliable.pool.task_pool import Line, ProcessLife


@dataclass(eq=False)
class Process:
    pid: int


@dataclass
class Job:
    """What billiard's job knows of who has it."""

    pids: list[int] = field(default_factory=list)
    _write_to: Process | None = None
    _scheduled_for: Process | None = None

    def worker_pids(self) -> list[int]:
        return self.pids


@pytest.fixture
def pool() -> Any:
    """A pool of three processes, none of which was started."""
    kind = pool_of_lives(ProcessLife(), Line())
    found = kind.__new__(kind)
    found._pool, found._cache = [Process(1), Process(2), Process(3)], {}
    return found


@pytest.mark.parametrize("how", ["pids", "_write_to", "_scheduled_for"])
def test_a_process_is_busy_from_when_it_is_handed_a_job(pool: Any, how: str) -> None:
    busy = pool._pool[1]
    pool._cache[7] = Job(**{how: [busy.pid] if how == "pids" else busy})
    assert [process.pid for process in pool._iterinactive()] == [1, 3]


def test_all_are_idle_without_jobs(pool: Any) -> None:
    assert [process.pid for process in pool._iterinactive()] == [1, 2, 3]

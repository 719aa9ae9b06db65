"""What becomes of the jobs of a pool that is flushed, as when the connection is lost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from celery.concurrency import asynpool

from celery_reliable.compat import pool
from celery_reliable.compat.processes import _flush, keep_job


def job(number: int, *, is_handed: bool = False, pid: int | None = None) -> Any:
    """A job as billiard has it."""
    return SimpleNamespace(
        _job=number,
        _write_to=object() if is_handed else None,
        _worker_pid=pid,
        _accepted=pid is not None,
    )


class Dropping:
    """A pool that drops, when it is flushed, what nobody has accepted: as Celery's does."""

    def __init__(self, jobs: list[Any]) -> None:
        self._cache = {one._job: one for one in jobs}
        self.accepted: set[int] = set()

    def flush(self) -> None:
        self.accepted = {number for number, one in self._cache.items() if one._accepted}
        self._cache = {number: self._cache[number] for number in self.accepted}


def test_a_job_that_a_process_was_handed_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    handed, waiting, accepted = (
        job(1, is_handed=True),
        job(2, is_handed=False),
        job(3, is_handed=True, pid=7),
    )
    # Of a map, say, which no process is handed as a whole.
    other = SimpleNamespace(_job=4, _accepted=False, _worker_pid=None)
    processes = Dropping([handed, waiting, accepted, other])
    monkeypatch.setattr(asynpool, "AsynPool", Dropping)
    monkeypatch.setattr(pool, "billiards", lambda _: processes)
    celerys = SimpleNamespace(flush=processes.flush)

    pool.keep_handed_jobs(celerys)
    # This is what Celery calls.
    celerys.flush()

    assert set(processes._cache) == {1, 3}
    # Its process has yet to say that it begins.
    assert (handed._accepted, accepted._accepted) == (False, True)


def test_of_the_jobs_of_ours_that_are_dropped_is_told() -> None:
    kept, waiting, theirs = job(1, is_handed=True, pid=7), job(2, is_handed=False), job(3, pid=None)
    dropped: list[int] = []
    for one in (kept, waiting):
        keep_job(one, lambda n=one._job: dropped.append(n))  # type: ignore[misc]
    jobs = {one._job: one for one in (kept, waiting, theirs)}

    def flush() -> None:
        for one in list(jobs.values()):
            if not one._accepted:
                del jobs[one._job]

    _flush(jobs, flush)

    assert set(jobs) == {1}
    assert dropped == [2]

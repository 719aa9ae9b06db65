"""What becomes of the jobs of a pool that is flushed, as when the connection is lost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from celery_reliable.compat.processes import _flush, keep_job


def job(number: int, *, is_handed: bool, pid: int | None = None) -> Any:
    """A job as billiard has it."""
    return SimpleNamespace(
        _job=number,
        _write_to=object() if is_handed else None,
        _worker_pid=pid,
        _accepted=pid is not None,
    )


def test_a_job_that_a_process_was_handed_is_kept_and_of_the_others_it_is_told() -> None:
    handed, waiting, accepted, theirs = (
        job(1, is_handed=True),
        job(2, is_handed=False),
        job(3, is_handed=True, pid=7),
        job(4, is_handed=True),
    )
    dropped: list[int] = []
    for one in (handed, waiting, accepted):
        keep_job(one, lambda n=one._job: dropped.append(n))  # type: ignore[misc]
    jobs = {one._job: one for one in (handed, waiting, accepted, theirs)}

    def flush() -> None:
        for one in list(jobs.values()):
            if not one._accepted:
                del jobs[one._job]

    _flush(jobs, flush)

    assert set(jobs) == {1, 3}
    assert dropped == [2]
    # Its process has yet to say that it begins.
    assert (handed._accepted, accepted._accepted) == (False, True)

"""What is told of a process that died."""

from __future__ import annotations

from pathlib import Path

import pytest
from billiard.exceptions import WorkerLostError

from celery_reliable.worker import claims
from celery_reliable.worker.claims import MemoryWatch, how_it_ended

KILLED = WorkerLostError("Worker exited prematurely: signal 9 (SIGKILL) Job: 3.")


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the kernel tells of this process's cgroup."""
    file = tmp_path / "memory.events"
    killed(file, 7)
    monkeypatch.setattr(claims, "watch", MemoryWatch(file))
    return file


def killed(events: Path, count: int) -> None:
    """Have the kernel say that it has killed so many."""
    events.write_text(f"low 0\nhigh 0\nmax 12\noom 9\noom_kill {count}\noom_group_kill 0\n")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (KILLED, "signal 9 (SIGKILL), pid 7"),
        (
            WorkerLostError("Worker exited prematurely: exitcode 70 Job: 12."),
            "exitcode 70, pid 7",
        ),
        (
            WorkerLostError("Worker exited prematurely: signal 11 (SIGSEGV) Job: 0."),
            "signal 11 (SIGSEGV), pid 7",
        ),
        (WorkerLostError("Worker exited prematurely: SystemExit(3)."), "SystemExit(3), pid 7"),
        (WorkerLostError("something\nelse"), "something else, pid 7"),
    ],
)
def test_signal_or_exit_code_and_process(events: Path, error: Exception, told: str) -> None:
    assert how_it_ended(error, 7) == told


def test_out_of_memory_is_told_where_the_kernel_has_killed_just_now(events: Path) -> None:
    killed(events, 8)

    assert how_it_ended(KILLED, 7) == "signal 9 (SIGKILL), pid 7, out of memory"
    # Two may be killed at once, and are told of one after the other.
    assert how_it_ended(KILLED, 8).endswith("out of memory")
    other = WorkerLostError("Worker exited prematurely: signal 11 (SIGSEGV) Job: 0.")
    assert how_it_ended(other, 9) == "signal 11 (SIGSEGV), pid 9"


@pytest.mark.parametrize(
    ("told", "place"),
    [
        ("0::/\n", "memory.events"),
        ("0::/kubepods/pod7/it\n", "kubepods/pod7/it/memory.events"),
        # The name outside of the container, whose own is the root.
        ("0::/kubepods/pod7/it\n", "memory.events"),
        ("4:memory:/here\n0::/there\n", "unified/there/memory.events"),
        ("4:memory:/here\n", None),
    ],
)
def test_where_the_kernel_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str, place: str | None
) -> None:
    own = tmp_path / "cgroup"
    own.write_text(told)
    monkeypatch.setattr(claims, "_OWN_CGROUP", own)
    monkeypatch.setattr(claims, "_MOUNTS", (tmp_path / "sys", tmp_path / "sys" / "unified"))
    if place is not None:
        (tmp_path / "sys" / place).parent.mkdir(parents=True)
        killed(tmp_path / "sys" / place, 0)

    assert claims._events_file() == (None if place is None else tmp_path / "sys" / place)

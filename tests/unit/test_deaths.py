"""What is told of a process that died, and what is read of it later."""

from __future__ import annotations

from pathlib import Path

import pytest
from billiard.exceptions import WorkerLostError

from celery_reliable.ledger.groups import Death
from celery_reliable.worker import claims
from celery_reliable.worker.claims import MemoryWatch, how_it_ended


def lost(how: str) -> WorkerLostError:
    return WorkerLostError(f"Worker exited prematurely: {how} Job: 3.")


KILLED = lost("signal 9 (SIGKILL)")


@pytest.mark.parametrize(
    ("error", "told", "death"),
    [
        (KILLED, "signal 9 (SIGKILL), pid 7", Death("child_lost", "SIGKILL", None, False, 7)),
        (lost("exitcode 70"), "exitcode 70, pid 7", Death("child_lost", "", 70, False, 7)),
        (
            WorkerLostError("something\nelse"),
            "something else, pid 7",
            Death("child_lost", "", None, False, 7),
        ),
    ],
)
def test_signal_or_exit_code_and_process(error: Exception, told: str, death: Death) -> None:
    assert how_it_ended(error, 7) == told
    assert Death.of(f"child_lost: {told}") == death
    # An exception's text is anybody's.
    assert Death.of(f"ValueError: {told}") == Death()


def test_out_of_memory_is_told_where_the_kernel_has_killed_just_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = tmp_path / "memory.events"
    events.write_text("oom 9\noom_kill 7\noom_group_kill 0\n")
    monkeypatch.setattr(claims, "watch", MemoryWatch(events))
    events.write_text("oom 9\noom_kill 8\noom_group_kill 0\n")

    told = how_it_ended(KILLED, 7)

    assert told == "signal 9 (SIGKILL), pid 7, out of memory"
    assert str(Death.of(f"child_lost: {told}")) == "child_lost, SIGKILL, out of memory"
    # Two may be killed at once, and are told of one after the other.
    assert how_it_ended(KILLED, 8).endswith("out of memory")
    assert how_it_ended(lost("signal 11 (SIGSEGV)"), 9) == "signal 11 (SIGSEGV), pid 9"

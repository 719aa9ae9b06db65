"""The memory by which the processes of one pool, and no others, hear from their main process."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from celery_reliable.broker import Queues
from celery_reliable.pool import (
    Limited,
    Shift,
    note_revoked,
    note_revoked_stamps,
    share_memory,
    slot_of,
)
from celery_reliable.pool.child import limits_heard
from celery_reliable.pool.shift import may_be_revoked


def in_a_fork(does: Callable[[], None]) -> None:
    pid = os.fork()
    if not pid:
        does()
        os._exit(0)
    os.waitpid(pid, 0)


def test_a_process_is_heard_by_its_own_main_process_alone() -> None:
    """Workers that are forked from one parent have imported the same module."""

    def as_another_worker() -> None:
        share_memory()
        slot_of(1).last = 9

    def as_its_process() -> None:
        slot_of(1).last = 7

    share_memory()
    in_a_fork(as_its_process)
    in_a_fork(as_another_worker)

    assert slot_of(1).last == 7


def test_each_revoked_id_is_asked_for_and_hardly_any_other() -> None:
    share_memory()
    revoked = [f"revoked-{n}" for n in range(5_000)]

    in_a_fork(lambda: note_revoked(revoked))

    assert all(may_be_revoked(one, has_stamps=False) for one in revoked)
    others = [f"other-{n}" for n in range(5_000)]
    assert sum(may_be_revoked(one, has_stamps=False) for one in others) < 100
    assert not may_be_revoked("stamped", has_stamps=True)
    note_revoked_stamps()
    assert may_be_revoked("stamped", has_stamps=True)


def test_a_soft_limit_interrupts_no_other_task() -> None:
    """A main process that is held up sends its signal as the task's process runs the next one."""
    share_memory()
    heard: list[int] = []
    slot, queues = slot_of(1), Queues("unacked", "listed", "", (), (), ())
    before = signal.signal(signal.SIGUSR1, lambda number, _: heard.append(number))

    def is_heard(meant: float) -> bool:
        heard.clear()
        slot.meant = meant
        os.kill(os.getpid(), signal.SIGUSR1)
        return bool(heard)

    try:
        with limits_heard(Shift("token", 1, 0, queues, False, 0, 1.0)):
            slot.begin_limited(Limited(2.0, 7, 1.0, 0.0))
            assert [is_heard(1.0), is_heard(2.0)] == [False, True]
            slot.end_limited()
            # What nobody has sent for a limit is an operator's.
            assert [is_heard(2.0), is_heard(0.0)] == [False, True]
    finally:
        signal.signal(signal.SIGUSR1, before)

"""A fork waits for the ledger's next step."""

from __future__ import annotations

import pytest

from tests.ledger.scene import open_ledger
from tests.support.forking import Working, exit_code_of_a_child, has_no_holder

#: Of Python 3.12 and later: it is what these tests are about.
FORKS = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
WAIT_SECONDS = 10.0


@FORKS
def test_a_fork_waits_for_the_next_step_at_the_ledger(working, redis_server):
    ledger = open_ledger(redis_server.url(), "own")

    def steps(thread: Working) -> None:
        while not thread.stop_asked():
            with thread.lock:
                thread.has_begun.set()
                thread.stop_asked(0.05)
            ledger.find("task")

    thread = working(steps)
    codes = [exit_code_of_a_child(lambda: has_no_holder(thread.lock)) for _ in range(5)]
    assert codes == [0] * 5
    thread.ask_to_stop()
    assert thread.join(WAIT_SECONDS)
    ledger.close()

"""Effects are at least once.

A worker may die after your code has done its work and before that is noted. Then it is done again.
"""

from __future__ import annotations

from celery import chain

from tests.integration.conftest import Project
from tests.integration.figures import wait_until_settled
from tests.support.promises import promise
from tests.support.waiting import wait_for


@promise("effects-at-least-once")
def test_a_chain_whose_member_is_killed_when_it_has_sent_the_next(soon: Project) -> None:
    """The next is sent again; while it lives, that is one task all the same."""
    trap = "worker after the next is sent"
    for name in ("one", "two"):
        soon.start_worker(name, environ={"TRAP": trap})
    step, note = soon.task("step"), soon.task("slow_note")
    result = chain(step.s(1, 1), note.s()).apply_async()
    wait_for(lambda: soon.effects.client.exists(f"died:{trap}"), 10, "the kill")
    wait_for(lambda: len(soon.effects.finished(result.parent.id)) == 2, 20, "the first again")
    result.get(timeout=20)
    wait_until_settled(soon.redis, 20)
    # It may have been in the killed worker as well.
    assert len(soon.effects.finished(result.id)) == 1
    assert soon.effects.overlaps() == []

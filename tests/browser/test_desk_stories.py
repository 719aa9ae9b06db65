"""What an operator does at the browser, with a worker that runs what is replayed."""

from __future__ import annotations

from tests.browser.night import Night
from tests.browser.visitor import Visitor
from tests.support.waiting import wait_for


def test_a_letter_is_found_read_and_replayed(visitor: Visitor, night: Night) -> None:
    (task_id,) = night.charges(1)
    night.refunds(2)
    visitor.log_in("root")

    visitor.open("/admin/")
    visitor.click("Dead letters")
    assert "3 dead letters" in visitor.main
    visitor.click(task_id)
    assert "PaymentsUnreachable" in visitor.main
    night.mend()
    visitor.click("Replay")
    visitor.click("Yes")

    visitor.wait_for_text("1 dead letter replayed")
    wait_for(night.charged, 20, "the order to be charged")
    assert "2 dead letters" in visitor.main

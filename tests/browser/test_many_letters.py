"""In the morning: from the desk to the cause to the replay of a group, and what is done to many."""

from __future__ import annotations

import json

from tests.browser.night import Night
from tests.browser.visitor import DESK, Visitor
from tests.support.waiting import wait_for

LIST = f"{DESK}deadletter/"
RUN_SECONDS = 30
#: So many, and so many a second, that the page is seen on its way.
MANY, RATE = 100, 20
MOST_CLICKS = 5


def over(visitor: Visitor) -> bool:
    return visitor.attributes("#desk-run", "data-over") == ["yes"]


def done(visitor: Visitor) -> int:
    return int(visitor.read("#run-done"))


def test_from_the_desk_to_the_replay_of_a_group_in_five_clicks(
    visitor: Visitor, night: Night
) -> None:
    night.charges(12, first=100)
    night.refunds(2)
    night.mend()
    visitor.log_in("root")
    visitor.open("/admin/celery_reliable/deadletter/desk/")
    visitor.clicks = 0

    assert "12 billing.charge failed PaymentsUnreachable" in visitor.find("#desk-groups").text
    visitor.follow(visitor.link("billing.charge", "#desk-groups"))
    visitor.follow(visitor.find("[data-letter] th a"))
    assert "did not answer" in visitor.find("#desk-traceback").text
    visitor.follow(visitor.find("#desk-to-group"))
    visitor.follow(visitor.find("#desk-replay-all"))
    assert visitor.find("#desk-total").get_attribute("data-total") == "12"
    visitor.follow(visitor.find("#desk-yes"))

    assert visitor.clicks <= MOST_CLICKS
    wait_for(lambda: over(visitor), RUN_SECONDS, "the replay to be over")
    assert done(visitor) == 12
    wait_for(lambda: len(night.charged()) == 12, RUN_SECONDS, "the orders to be charged")
    assert night.charged() == {*range(100, 112)}
    # Who did not fit was not touched.
    assert {one.name for one in night.desk.letters.list()} == {"billing.refund"}


def test_a_long_replay_is_watched_paused_and_gone_on_with(visitor: Visitor, night: Night) -> None:
    night.charges(MANY)
    night.mend()
    visitor.log_in("replayer")
    visitor.open(LIST)
    visitor.follow(visitor.find("#desk-replay-all"))
    rate = visitor.find("#act-rate")
    rate.clear()
    rate.send_keys(str(RATE))
    visitor.follow(visitor.find("#desk-yes"))

    wait_for(lambda: 0 < done(visitor) < MANY, RUN_SECONDS, "some of it to be done")
    visitor.press(visitor.find("#run-pause"))
    visitor.wait_for_text("Not all of it is done")
    so_far = done(visitor)
    assert night.desk.letters.count() == MANY - so_far > 0
    # The address knows how far it has come, and does nothing by being opened.
    visitor.driver.refresh()
    assert done(visitor) == so_far
    assert night.desk.letters.count() == MANY - so_far
    visitor.press(visitor.find("#run-go"))
    wait_for(lambda: over(visitor), RUN_SECONDS, "the rest of it")

    assert done(visitor) == MANY
    wait_for(lambda: len(night.charged()) == MANY, RUN_SECONDS, "all orders to be charged")
    acts = [one for one in night.desk.audit(50) if one.by == "django:replayer"]
    assert {one.act for one in acts} == {"replay"}
    assert sum(one.done for one in acts if one.phase == "end") >= MANY


def test_a_letter_is_replayed_with_other_arguments(visitor: Visitor, night: Night) -> None:
    (task_id,) = night.refunds(1, first=5)
    visitor.log_in("editor")
    visitor.open(LIST)
    visitor.click(task_id)
    assert "[5, " not in visitor.find("#desk-task").text
    visitor.follow(visitor.find("#desk-arguments"))
    assert "[5, " in visitor.find("#desk-task").text

    visitor.follow(visitor.find("#desk-edit-link"))
    field = visitor.find("#act-args")
    assert json.loads(field.get_property("value")) == [5, "12,50"]
    field.clear()
    field.send_keys('[5, "12.50"')
    visitor.follow(visitor.find("#desk-yes"))
    assert "a JSON list" in visitor.find("#desk-problem").text
    visitor.find("#act-args").send_keys("]")
    visitor.follow(visitor.find("#desk-yes"))

    visitor.wait_for_text("Published as ")
    wait_for(lambda: night.refunded() == {5}, RUN_SECONDS, "the order to be refunded")
    assert night.desk.letters.count() == 0
    visitor.refused(400)

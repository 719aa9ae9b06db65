"""What an operator does at the browser, with a worker that runs what is replayed; how it looks."""

from __future__ import annotations

import json

from celery_reliable.operations import OrderKind
from tests.browser.shop.factory import SECRET
from tests.browser.visitor import DESK, SPACE, Night, Visitor
from tests.support.waiting import wait_for

LIST = f"{DESK}deadletter/"
#: Who has an object is asked by a POST, as its id may be an argument.
OFFERED = (
    "#content form[method=post]:not(#desk-find-object) :is(button, input[type=submit]),"
    "#content a.button"
)
RUN_SECONDS = 30
#: So many, and so many a second, that the page is seen on its way.
MANY, RATE = 100, 20


def test_a_letter_is_found_read_and_replayed(visitor: Visitor, night: Night) -> None:
    (task_id,) = night.charges(1, first=7)
    night.refunds(2)
    visitor.log_in("root")
    visitor.open(LIST)
    assert "3 dead letters" in visitor.main

    visitor.fill("task", "billing.*")
    visitor.fill("exception", "Payments*")
    visitor.follow(visitor.find("#filter-apply"))
    assert [one.get_attribute("data-letter") for one in visitor.all("[data-letter]")] == [task_id]
    visitor.click(task_id)

    letter = visitor.find("#desk-task").text
    assert "PaymentsUnreachable: payments.example:443 did not answer" in letter
    assert "billing.charge" in letter
    assert "raise PaymentsUnreachable" in visitor.find("#desk-traceback").text
    assert "failed" in visitor.find("#desk-history").text
    night.mend()
    visitor.follow(visitor.find("#desk-replay"))
    assert "1 dead letter" in visitor.main
    visitor.follow(visitor.find("#desk-yes"))
    visitor.wait_for_text("1 dead letter replayed")
    wait_for(lambda: night.charged() == {7}, RUN_SECONDS, "the order to be charged")
    assert night.desk.letters.count() == 2


def test_all_of_it_can_be_done_by_keyboard(visitor: Visitor, night: Night) -> None:
    (task_id,) = night.charges(1, first=8)
    night.mend()
    visitor.log_in("root")
    visitor.open(LIST)

    visitor.tab_to(f"Choose {task_id}")
    visitor.type(SPACE)
    visitor.tab_to("Replay")
    visitor.enter()
    visitor.wait_for_text("1 dead letter")
    visitor.tab_to("Yes")
    visitor.enter()

    visitor.wait_for_text("1 dead letter replayed")
    wait_for(lambda: night.charged() == {8}, RUN_SECONDS, "the order to be charged")


def test_what_waits_says_for_whom(visitor: Visitor, night: Night) -> None:
    first, second = night.count_twice("A")
    parked = night.remind_later(3600)
    night.picture()
    visitor.log_in("root")
    visitor.open("/admin/")
    visitor.click("Desk")

    assert count(visitor, "running") == 1
    # Which of them the retry is, is the worker's to know.
    assert count(visitor, "queued") + count(visitor, "parked") == 2
    assert count(visitor, "dead") == 1
    assert visitor.find("[data-queue='celery']")
    visitor.follow(visitor.find("#desk-tab-tasks"))
    states = {
        one.get_attribute("data-task"): one.get_attribute("data-state")
        for one in visitor.all("#desk-tasks [data-task]")
    }
    assert states.keys() == {first, second, parked}
    assert (states[first], states[parked]) == ("running", "parked")
    visitor.click(second)
    assert visitor.find("#desk-why").get_attribute("data-kind") == "object"
    assert first in visitor.find("#desk-why").text
    visitor.follow(visitor.find("#desk-to-holder"))
    assert visitor.find("#desk-why").get_attribute("data-kind") == "running"
    visitor.follow(visitor.find("#desk-tab-objects"))
    visitor.follow(visitor.find("#desk-objects tbody th a"))
    assert first in visitor.find("#desk-holder").text
    assert second in visitor.find("#desk-waiters").text
    visitor.follow(visitor.find("#desk-tab-workers"))
    assert first in visitor.find("[data-worker]").text


def count(visitor: Visitor, state: str) -> int:
    """What the tile says; a state without a task has none."""
    return sum(map(int, visitor.attributes(f"#desk-states [data-state='{state}']", "data-count")))


def test_who_may_only_see_is_offered_nothing(visitor: Visitor, night: Night) -> None:
    night.charges(1)
    night.remind_later(3600)
    visitor.log_in("viewer")

    for address in visitor.walk():
        assert visitor.arrived()[0] == 200, address
        assert [one.accessible_name for one in visitor.all(OFFERED)] == [], address
        assert SECRET not in visitor.driver.page_source, address


def test_who_may_operate_ends_what_lives(visitor: Visitor, night: Night) -> None:
    (letter,) = night.charges(1)
    parked = night.remind_later(3600)
    visitor.log_in("operator")

    visitor.open(LIST)
    visitor.follow(visitor.named(letter))
    assert not visitor.all("#desk-replay, #desk-discard")
    visitor.follow(visitor.find("#desk-tab-tasks"))
    visitor.press(visitor.find(f"input[value='{parked}']"))
    visitor.follow(visitor.find("#desk-revoke"))
    assert "Revoke 1 task for good?" in visitor.main
    visitor.follow(visitor.find("#desk-no"))
    assert night.desk.tasks.get(parked).state == "parked"
    visitor.press(visitor.find(f"input[value='{parked}']"))
    visitor.follow(visitor.find("#desk-revoke"))
    visitor.follow(visitor.find("#desk-yes"))
    visitor.wait_for_text("1 task revoked.")
    assert night.desk.tasks.get(parked).outcome == "REVOKED"
    visitor.follow(visitor.find("#desk-tab-overview"))
    visitor.follow(visitor.find("#desk-sweep"))
    assert "pass" in visitor.find(".messagelist").text


def over(visitor: Visitor) -> bool:
    return visitor.attributes("#desk-run", "data-over") == ["yes"]


def done(visitor: Visitor) -> int:
    return int(visitor.read("#run-done"))


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


# -- by day and by night, to a screen reader, and on a phone

#: What is used, or says something without text.
USED = "#content :is(input:not([type=hidden]), select, textarea, button, svg):not([hidden])"
#: What somebody with a phone reads and presses.
PHONE_SEES = "#content :is(td, th, button, a, time, input:not([type=hidden]), select, textarea)"
PHONE_WIDTH = 390


def test_every_page_can_be_read_by_day_by_night_and_by_ear(visitor: Visitor, night: Night) -> None:
    night.charges(2)
    night.picture()
    visitor.log_in("root")
    grounds: dict[str, set[bool]] = {"light": set(), "dark": set()}

    for address in visitor.walk():
        for scheme, seen in grounds.items():
            visitor.set_media(prefers_color_scheme=scheme)
            seen.add(visitor.background() < 0.5)
        named(visitor, address)

    assert grounds == {"light": {False}, "dark": {True}}


def test_on_a_phone_each_cell_and_each_act_is_on_the_screen(visitor: Visitor, night: Night) -> None:
    night.charges(2)
    night.refunds(1)
    night.picture()
    night.remind_later(3600)
    night.desk.orders.give(OrderKind.PAUSE, "invoices", by="ann", why="its night", later=True)
    visitor.log_in("root")

    beyond = {
        address: found
        for address in visitor.walk()
        if (found := visitor.off_screen(PHONE_SEES, PHONE_WIDTH))
    }

    assert beyond == {}
    visitor.open(f"{DESK}deadletter/orders/")
    assert visitor.all(".desk-resume")


def named(visitor: Visitor, address: str) -> None:
    """Look whether all that is to be used has a name for a screen reader, and the page fits."""
    for one in visitor.all(USED):
        assert one.accessible_name.strip(), (address, one.get_attribute("outerHTML"))
    ids = visitor.attributes("#content [id]", "id")
    assert len(ids) == len(set(ids)), (address, ids)
    assert not visitor.overflows(), address

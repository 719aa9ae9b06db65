"""What an operator does at the browser, with a worker that runs what is replayed; how it looks."""

from __future__ import annotations

from celery_reliable.operations import OrderKind
from tests.browser.visitor import DESK, SPACE, Night, Visitor
from tests.support.waiting import wait_for

LIST = f"{DESK}deadletter/"
RUN_SECONDS = 30
MANY = 100


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


def test_a_replay_of_many_is_asked_first_and_done(visitor: Visitor, night: Night) -> None:
    night.charges(MANY)
    night.mend()
    visitor.log_in("replayer")
    visitor.open(LIST)
    visitor.follow(visitor.find("#desk-replay-all"))
    visitor.wait_for_text("dead letters?")
    visitor.follow(visitor.find("#desk-yes"))

    visitor.wait_for_text(f"{MANY} dead letters replayed")
    wait_for(lambda: len(night.charged()) == MANY, RUN_SECONDS, "all orders to be charged")
    acts = [one for one in night.desk.audit(50) if one.by == "django:replayer"]
    assert {one.act for one in acts} == {"replay"}
    assert sum(one.done for one in acts if one.phase == "end") == MANY


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

"""How the desk looks: by day and by night, to a screen reader, and in the pictures of the docs."""

from __future__ import annotations

from celery_reliable.operations import OrderKind
from tests.browser.night import Night
from tests.browser.visitor import DESK, Visitor

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

"""What tasks and messages are called and hold is text on every page, and never more."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote, urlencode

import pytest

from celery_reliable.operations import Desk
from tests.browser.hostile import CANARY, INJECTED, LARGE, MARKUP, Hostile
from tests.browser.visitor import DESK, Visitor


@pytest.fixture
def hostile(desk: Desk) -> Iterator[Hostile]:
    found = Hostile(desk.ledger)
    yield found
    found.end()


def look_at(visitor: Visitor, address: str, expected: int = 200) -> None:
    """Look whether the page that is open is whole, and nothing became markup."""
    status, size = visitor.arrived()
    assert status == expected, (address, status)
    assert size < 4 * LARGE, address
    assert visitor.driver.execute_script(f"return window.{CANARY} || 0") == 0
    injected = [one.get_attribute("outerHTML") for one in visitor.all(INJECTED)]
    assert injected == [], address
    assert visitor.console() == [], address


def test_every_page_shows_them_as_text(visitor: Visitor, hostile: Hostile, desk: Desk) -> None:
    visitor.log_in("root")

    for address in visitor.walk():
        look_at(visitor, address)
    # With the arguments, too.
    for link in letters(visitor):
        visitor.driver.get(link)
        visitor.follow(visitor.find("#desk-arguments"))
        look_at(visitor, link)
    # And an id is the same when it comes back from a page.
    for link in letters(visitor):
        visitor.driver.get(link)
        visitor.follow(visitor.find("#desk-discard"))
        look_at(visitor, link)
        visitor.follow(visitor.find("#desk-yes"))
        look_at(visitor, link)

    assert desk.letters.count() == 0


def test_what_is_asked_for_comes_back_as_text(visitor: Visitor) -> None:
    visitor.log_in("root")
    here = f"{DESK}deadletter/"
    asked = urlencode({"text": MARKUP, "task": MARKUP, "worker": MARKUP})
    words = urlencode(
        {"text": MARKUP, "reason": MARKUP, "state": MARKUP, "older_than_seconds": MARKUP}
    )

    for path, status in (
        (f"?{asked}", 200),
        (f"groups/?{asked}", 200),
        (f"tasks/?{asked}", 200),
        (f"act/discard_dead_letters/?done=1&{asked}", 200),
        (f"?{words}", 400),
        (f"tasks/?{words}", 400),
        (f"act/replay_dead_letters/?to_queue={quote(MARKUP)}&{words}", 400),
        (f"?cursor={quote(MARKUP)}", 400),
        (f"?group={quote(MARKUP)}", 404),
        (f"tasks/task/{quote(MARKUP, safe='')}/", 404),
    ):
        visitor.open(here + path)
        if status != 200:
            visitor.refused(status)
        look_at(visitor, path, status)


def letters(visitor: Visitor) -> list[str]:
    visitor.open(f"{DESK}deadletter/")
    found = visitor.links("[data-letter] th a")
    assert len(found) == 2
    return found

"""How the desk looks: by day and by night, to a screen reader, and in the pictures of the docs."""

from __future__ import annotations

from tests.browser.night import Night
from tests.browser.visitor import Visitor

#: By WCAG 2, AA.
LEAST_CONTRAST = 4.5
#: What is used, or says something without text.
USED = "#content :is(input:not([type=hidden]), select, textarea, button, svg):not([hidden])"
#: What has text of its own.
TEXTS = (
    "#content :is(a, p, td, th, h1, h2, label, code, pre, time, dt, dd, li, span, text, button, \
input[type=submit], summary)"
)


def test_every_page_can_be_read_by_day_by_night_and_by_ear(visitor: Visitor, night: Night) -> None:
    night.charges(2)
    night.picture()
    visitor.log_in("root")
    pale: dict[str, float] = {}
    grounds: dict[str, set[bool]] = {"light": set(), "dark": set()}

    for address in visitor.walk():
        for scheme, seen in grounds.items():
            visitor.browser.set_media(prefers_color_scheme=scheme)
            seen.add(visitor.background() < 0.5)
            for text, contrast in visitor.contrasts(TEXTS):
                if contrast < LEAST_CONTRAST:
                    pale[f"{scheme} {address}: {text}"] = contrast
        named(visitor, address)

    assert pale == {}
    assert grounds == {"light": {False}, "dark": {True}}


def named(visitor: Visitor, address: str) -> None:
    """Look whether all that is to be used has a name for a screen reader, and the page fits."""
    for one in visitor.all(USED):
        assert one.accessible_name.strip(), (address, one.get_attribute("outerHTML"))
    ids = visitor.attributes("#content [id]", "id")
    assert len(ids) == len(set(ids)), (address, ids)
    assert not visitor.overflows(), address

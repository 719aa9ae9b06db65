"""How the desk looks: by day and by night, to a screen reader, and in the pictures of the docs."""

from __future__ import annotations

import pytest

from tests.browser.night import Night
from tests.browser.visitor import Visitor

#: By WCAG 2, AA.
LEAST_CONTRAST = 4.5
#: What has text of its own.
TEXTS = (
    "#content :is(a, p, td, th, h1, h2, label, code, pre, time, dt, dd, li, span, text, button, \
input[type=submit], summary)"
)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read(visitor: Visitor, night: Night, scheme: str) -> None:
    night.charges(2)
    night.picture()
    visitor.log_in("root")
    visitor.browser.set_media(prefers_color_scheme=scheme)
    pale: dict[str, float] = {}
    grounds = set()

    for address in visitor.walk():
        grounds.add(visitor.background())
        for text, contrast in visitor.contrasts(TEXTS):
            if contrast < LEAST_CONTRAST:
                pale[f"{address}: {text}"] = contrast

    assert pale == {}
    (ground,) = grounds
    assert (ground < 0.5) == (scheme == "dark")


def test_every_page_can_be_found_by_ear(visitor: Visitor, night: Night) -> None:
    night.charges(2)
    visitor.log_in("root")

    for address in visitor.walk():
        assert len(visitor.all("h1:not(#site-name)")) <= 1, address
        for one in visitor.all("#content :is(input:not([type=hidden]), select, textarea, button)"):
            assert one.accessible_name.strip(), (address, one.get_attribute("outerHTML"))
        for one in visitor.all("#content svg"):
            assert one.accessible_name.strip(), (address, one.get_attribute("outerHTML"))
        ids = [one.get_attribute("id") for one in visitor.all("#content [id]")]
        assert len(ids) == len(set(ids)), address
        assert not visitor.overflows(), address

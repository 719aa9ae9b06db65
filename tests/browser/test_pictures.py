"""The pictures of the docs: `pytest tests/browser/test_pictures.py --screenshots` makes them anew.

Each other run makes them, too, and looks only whether they are those that the docs show.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.browser.visitor import DESK, Night, Visitor
from tests.support.processes import REPOSITORY

LIST = f"{DESK}deadletter/"
PAGE = REPOSITORY / "docs" / "operations-admin.rst"
PLACE = REPOSITORY / "docs" / "screenshots"
#: Tracebacks of a shop on a server, and not of tests on whatever machine.
ELSEWHERE = r"""
const found = document.getElementById("desk-traceback");
if (found) {
  found.textContent = found.textContent
    .replace(/File "\S*\/(?=site-packages|celery_reliable)/g, 'File "/srv/shop/')
    .replace(/\S*tests.browser.shop.factory(?=\.py)/g, '"/srv/shop/billing')
    .replace("tests.browser.shop.factory", "billing");
}
"""


@pytest.fixture
def place(pytestconfig: pytest.Config, tmp_path: Path) -> Path:
    if not pytestconfig.getoption("screenshots"):
        return tmp_path
    PLACE.mkdir(exist_ok=True)
    return PLACE


def test_the_pictures_of_the_docs(visitor: Visitor, night: Night, place: Path) -> None:
    (letter, *_) = night.charges(80)
    night.refunds(3)
    night.picture()
    night.count_twice("A-17")
    night.remind_later(3600)
    visitor.log_in("root")

    for name, path in (
        ("desk", f"{LIST}desk/"),
        ("groups", f"{LIST}groups/"),
        ("letter", f"{LIST}tasks/task/{letter}/"),
        ("tasks", f"{LIST}tasks/"),
    ):
        visitor.open(path)
        visitor.driver.execute_script(ELSEWHERE)
        visitor.picture(place / f"{name}.png")

    made = {one.name for one in place.glob("*.png")}
    assert made == {*re.findall(r"screenshots/(\w+\.png)", PAGE.read_text("utf-8"))}
    assert {one.read_bytes()[:4] for one in place.glob("*.png")} == {b"\x89PNG"}

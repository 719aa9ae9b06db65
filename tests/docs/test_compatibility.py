"""What the page on compatibility says is allowed is what setup.cfg has."""

from __future__ import annotations

import re
from configparser import ConfigParser

from tests.docs.blocks import ROOT, page_path

TEXT = page_path("compatibility.rst").read_text("utf-8")


def cells(what: str) -> list[str]:
    """The cells of a row of the table."""
    row = re.search(rf"^   \* - {what}\n((?:     .*\n)+)", TEXT, re.MULTILINE)
    assert row, what
    return [
        " ".join(cell.split()) for cell in re.split(r"^     - ", row[1], flags=re.MULTILINE)[1:]
    ]


def test_what_is_allowed_is_what_is_installed() -> None:
    config = ConfigParser(interpolation=None)
    config.read(ROOT / "setup.cfg")
    options = config["options"]
    least = dict(
        re.findall(r"^(\w+)(?:\[redis\])?>=([\d.]+)", options["install_requires"], re.MULTILINE)
    )

    assert cells("Python")[0] == f"{options['python_requires'].strip('>=')} and later"
    for name, what in (("celery", "Celery"), ("kombu", "kombu"), ("redis", "redis-py")):
        assert cells(what)[0] == f"{least[name]} and later"

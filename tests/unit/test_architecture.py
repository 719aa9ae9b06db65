"""`docs/architecture.rst` is what is there: floors, doors, scripts and names.  That imports point
down is for import-linter to say, by the same floors.
"""

from __future__ import annotations

import configparser
import importlib
import inspect
import re
from itertools import chain
from typing import Any

import celery_reliable
from tests.docs.blocks import ROOT, Page

PACKAGE = ROOT / "celery_reliable"
PAGE = Page("architecture.rst")
NAME = re.compile(r"``([a-z_]\w*(?:\.\w+)*)``")
#: Every dotted name on the page that is one of the package.
NAMES = [name for name in NAME.findall(PAGE.text) if "." in name and not (ROOT / name).exists()]


def test_the_floors_are_those_of_the_contract_and_of_the_folder() -> None:
    drawn = re.findall(r"^    \| +(\d+) \| (.*?) *\|$", PAGE.section("The house"), re.MULTILINE)
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    contract = config["importlinter:contract:layers"]["layers"].strip().splitlines()
    there = {path.name.removesuffix(".py") for path in PACKAGE.iterdir()}

    assert [int(number) for number, _ in drawn] == list(range(len(drawn), 0, -1))
    floors = [set(names.split()) for _, names in drawn]
    assert [set(re.split(r"\s*[|:]\s*", row.strip())) for row in contract] == floors
    assert set(chain(*floors)) == there - {"__init__", "__pycache__", "py.typed"}


def test_each_package_has_its_door_on_the_page() -> None:
    doors = {row[0].strip("`"): " ".join(row[1:]) for row in PAGE.rows("The doors")[1:]}

    assert set(doors) == {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    for package, text in doors.items():
        module = importlib.import_module(f"{PACKAGE.name}.{package}")
        for name in (one for one in NAMES if f"``{one}``" in text):
            assert name.partition(".")[2] in module.__all__, name


def test_every_name_on_the_page_is_there() -> None:
    assert len(NAMES) > 50
    for name in NAMES:
        found: Any = celery_reliable
        path = PACKAGE.name
        for part in name.split("."):
            path += f".{part}"
            if inspect.ismodule(found) and not hasattr(found, part):
                importlib.import_module(path)
            found = (getattr if inspect.ismodule(found) else inspect.getattr_static)(found, part)


def test_every_script_of_a_way_is_there() -> None:
    titles = re.findall(r"^(\S.*)\n-+\n", PAGE.text, re.MULTILINE)
    ways = [PAGE.rows(title) for title in titles if "     - script\n" in PAGE.section(title)]
    scripts = {name for way in ways for row in way[1:] for name in NAME.findall(row[2])}

    assert scripts
    assert scripts <= {path.stem for path in PACKAGE.glob("*/lua/*.lua")}


def test_the_page_is_linked() -> None:
    for page in ("README.rst", "CONTRIBUTING.rst"):
        assert "``docs/architecture.rst``" in Page(page).text, page

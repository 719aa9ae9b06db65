"""`docs/architecture.rst` is what is there: floors, imports, doors and names."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from itertools import chain

from tests.support.architecture import (
    PACKAGE,
    PAGE,
    contract,
    doors,
    floors,
    names,
    resolve,
    ways,
)

FLOORS = floors()


def imports() -> Iterator[tuple[str, str]]:
    """Who imports whom, by the names of packages and modules right below the package."""
    for path in PACKAGE.rglob("*.py"):
        inner = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                found = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                found = [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                continue
            for one in found:
                package, _, rest = one.partition(".")
                if package == PACKAGE.name and inner != "__init__":
                    yield inner, rest.partition(".")[0]


def test_the_floors_are_those_of_the_contract_and_of_the_folder() -> None:
    there = {path.name.removesuffix(".py") for path in PACKAGE.iterdir()}

    assert contract() == FLOORS
    assert set(chain(*FLOORS)) == there - {"__init__", "__pycache__", "py.typed"}


def test_the_imports_point_down() -> None:
    of = {name: number for number, floor in enumerate(FLOORS) for name in floor}
    found = {(who, whom) for who, whom in imports() if who != whom}

    assert len(found) > 100
    assert [
        (who, whom)
        for who, whom in sorted(found)
        if of[who] > of[whom] or (of[who] == of[whom] and of[who] != len(FLOORS) - 1)
    ] == []


def test_each_package_has_its_door_on_the_page() -> None:
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}

    assert set(doors()) == packages


def test_every_name_on_the_page_is_there() -> None:
    assert len(names()) > 50
    for name in names():
        resolve(name)


def test_what_is_said_of_a_door_is_in_it() -> None:
    for package, text in doors().items():
        module = importlib.import_module(f"{PACKAGE.name}.{package}")
        for name in (one for one in names() if f"``{one}``" in text):
            assert name.partition(".")[2] in module.__all__, name


def test_every_script_of_a_way_is_there() -> None:
    scripts = {script for way in ways() for step in way for script in step.scripts}

    assert scripts <= {path.stem for path in PACKAGE.glob("*/lua/*.lua")}
    assert scripts


def test_the_page_is_linked() -> None:
    for page in ("README.rst", "CONTRIBUTING.rst"):
        text = PAGE.parents[1].joinpath(page).read_text("utf-8")
        assert "``docs/architecture.rst``" in text, page

"""What `docs/architecture.rst` says, in a form that can be compared."""

from __future__ import annotations

import configparser
import importlib
import inspect
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = [
    "PACKAGE",
    "PAGE",
    "Step",
    "contract",
    "doors",
    "floors",
    "names",
    "resolve",
    "ways",
]

_ROOT = Path(__file__).parents[2]
PACKAGE = _ROOT / "celery_reliable"
PAGE = _ROOT / "docs" / "architecture.rst"

_SECTION = re.compile(r"^(?P<title>\S.*)\n-+\n", re.MULTILINE)
_FLOOR = re.compile(r"^    \| +(?P<number>\d+) \| (?P<names>.*?) *\|$", re.MULTILINE)
_ROW = re.compile(r"^   \* - (?P<first>.*)\n(?P<others>(?:     .*\n)*)", re.MULTILINE)
_NAME = re.compile(r"``([a-z_]\w*(?:\.\w+)*)``")


@dataclass(frozen=True)
class Step:
    """A row of a way: the process, the function below the package, and the scripts that it runs."""

    process: str
    name: str
    scripts: tuple[str, ...]


def floors() -> list[set[str]]:
    """The floors of the drawing, the roof first."""
    found = list(_FLOOR.finditer(_section("The house")))
    numbers = [int(row["number"]) for row in found]
    assert numbers == list(range(len(found), 0, -1)), "the floors are numbered from the ground"
    return [set(row["names"].split()) for row in found]


def contract() -> list[set[str]]:
    """The floors of the contract in `setup.cfg`, the roof first."""
    config = configparser.ConfigParser()
    config.read(_ROOT / "setup.cfg")
    rows = config["importlinter:contract:layers"]["layers"].strip().splitlines()
    return [set(re.split(r"\s*[|:]\s*", row.strip())) for row in rows]


def doors() -> dict[str, str]:
    """What the page says of each package's door."""
    rows = _rows(_section("The doors"))
    return {package.strip("`"): " ".join(text) for package, *text in rows}


def ways() -> list[list[Step]]:
    """The steps of each way of the page, in their order."""
    return [_way(text) for _, text in _sections() if "     - script\n" in text]


def names() -> list[str]:
    """Every dotted name on the page that is one of the package."""
    found = _NAME.findall(PAGE.read_text("utf-8"))
    return [name for name in found if "." in name and not (_ROOT / name).exists()]


def resolve(name: str) -> Any:
    """The object of a name below the package.  Raises AttributeError when there is none."""
    found: Any = importlib.import_module(PACKAGE.name)
    path = PACKAGE.name
    for part in name.split("."):
        path += f".{part}"
        if inspect.ismodule(found) and not hasattr(found, part):
            importlib.import_module(path)
        found = inspect.getattr_static(found, part)
    return found


def _sections() -> list[tuple[str, str]]:
    text = PAGE.read_text("utf-8")
    heads = list(_SECTION.finditer(text))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    return [(h["title"], text[h.end() : end]) for h, end in zip(heads, ends, strict=True)]


def _section(title: str) -> str:
    return dict(_sections())[title]


def _rows(text: str) -> list[list[str]]:
    """The cells of each row of the tables in a section, without the heads."""
    rows = []
    for row in _ROW.finditer(text):
        cells = [row["first"].strip()]
        for line in row["others"].splitlines():
            if line.startswith("     -"):
                cells.append(line[6:].strip())
            else:
                cells[-1] += " " + line.strip()
        rows.append(cells)
    return rows[1:]


def _way(text: str) -> list[Step]:
    return [
        Step(process, step.strip("`"), tuple(_NAME.findall(scripts)))
        for process, step, scripts, _ in _rows(text)
    ]

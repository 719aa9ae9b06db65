"""What `docs/architecture.rst` says, in a form that can be compared."""

from __future__ import annotations

import configparser
import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

from tests.support.walking import Entry

__all__ = [
    "PACKAGE",
    "PAGE",
    "Step",
    "Way",
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
_USED = re.compile(r"^Used on the way: (?P<names>.*?)\n\n", re.MULTILINE | re.DOTALL)
_AT_TIMES = re.compile(r"^Used at times: (?P<names>.*?)\n\n", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Step:
    """A row of a way: the process, the function below the package, and the scripts that it runs."""

    process: str
    name: str
    scripts: tuple[str, ...]

    @property
    def module(self) -> str:
        """The module of the function, below the package."""
        parts = self.name.split(".")
        while not PACKAGE.joinpath(*parts).with_suffix(".py").exists():
            parts.pop()
        return ".".join(parts)

    def is_begun_by(self, entry: Entry) -> bool:
        """Whether this is the step's function, or one that is made within it."""
        codes = {(one.co_name, one.co_firstlineno) for one in _within(_code_of(self.name))}
        is_here = entry.module == f"{PACKAGE.name}.{self.module}"
        return is_here and (entry.function, entry.line) in codes


@dataclass(frozen=True)
class Way:
    """A way of a task, the modules that its steps use, and those that they use only at times."""

    steps: list[Step]
    used: set[str]
    at_times: set[str]

    @property
    def modules(self) -> set[str]:
        """All modules that the page names on this way."""
        return {step.module for step in self.steps} | self.used


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


def ways() -> list[Way]:
    """The ways of the page, in their order."""
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


def _code_of(name: str) -> CodeType:
    found = resolve(name)
    found = getattr(found, "fget", None) or getattr(found, "__func__", None) or found
    code: CodeType = inspect.unwrap(found).__code__
    return code


def _within(code: CodeType) -> Iterator[CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _within(const)


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


def _way(text: str) -> Way:
    steps = [
        Step(process, step.strip("`"), tuple(_NAME.findall(scripts)))
        for process, step, scripts, _ in _rows(text)
    ]
    used, at_times = (
        {name for found in line.finditer(text) for name in _NAME.findall(found["names"])}
        for line in (_USED, _AT_TIMES)
    )
    return Way(steps, used, at_times)

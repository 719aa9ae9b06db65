"""The blocks and tables of a page, for the test modules that run and compare them.

A module of tests claims the pages whose blocks it runs: ``PAGES = ("guides/foo.rst",)``, below
`docs`; README.rst, CONTRIBUTING.rst and example_project/README.rst are below the root.  It takes
the blocks from the page, so that what is tested is what is printed, and asserts that none is left.
"""

from __future__ import annotations

import ast
import re
import shlex
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from click.testing import Result
from docutils import nodes
from docutils.core import publish_doctree
from docutils.parsers.rst import Directive, directives

from tests.integration.commands import invoke

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

#: Pages that are not below `docs`, but below the root.
_FRONT = ("README.rst", "CONTRIBUTING.rst", "example_project/README.rst")
#: The options of `code-block`.
_OPTIONS = ("caption", "class", "dedent", "emphasize-lines", "force", "linenos", "name")
_PROMPT = re.compile(r"^\s*(?:\$|>>>|\.\.\.) ?")
_INLINE = re.compile(r"``(celery -A proj [^`]+)``")
_ROW = re.compile(r"^   \* - .*\n(?:     .*\n)*", re.MULTILINE)
_CELL = re.compile(r"^   (?:\* |  )- ?", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A block of a page: its language ("" where none is said), its text, its line, its section.

    `section` has the titles that it stands below; `caption` names the file that it is of, where the
    page says one.
    """

    page: str
    language: str
    text: str
    line: int
    section: tuple[str, ...] = ()
    caption: str = ""

    @property
    def is_runnable(self) -> bool:
        """Whether it is code, commands or configuration, which a test has to run or to check."""
        return self.language not in ("", "text", "none")

    @property
    def commands(self) -> list[str]:
        """Its commands, one an element: without prompts, comments and what a console answered."""
        lines = self.text.replace("\\\n", " ").splitlines()
        if self.language == "console":
            lines = [line for line in lines if _PROMPT.match(line)]
        said = (re.sub(r" {2,}", " ", _PROMPT.sub("", line)).strip() for line in lines)
        return [line for line in said if line and not line.startswith("#")]

    def __str__(self) -> str:
        first = self.text.strip().partition("\n")[0]
        return f"{self.page}:{self.line} ({self.language}) {first}"


class Page:
    """A page and its blocks; it knows which of them somebody has asked for."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.path = page_path(name)
        self.text = self.path.read_text("utf-8")
        self.blocks = _blocks(self.path, name)
        self._taken: set[Block] = set()

    def block(self, words: str, language: str | None = None) -> Block:
        """The one block that has these words (and is of this language)."""
        found = [one for one in self.of(language, take=False) if words in one.text]
        assert len(found) == 1, f"{len(found)} blocks of {self.name} have {words!r}"
        self._taken.update(found)
        return found[0]

    def of(
        self, language: str | None = None, *, section: str = "", take: bool = True
    ) -> list[Block]:
        """The blocks of a language, of a section; all if none is given; in their order."""
        found = [
            one
            for one in self.blocks
            if language in (None, one.language) and (not section or section in one.section)
        ]
        if take:
            self._taken.update(found)
        return found

    def commands(self, section: str = "") -> list[str]:
        """The commands of its blocks of bash and of consoles, in their order."""
        blocks = [one for kind in ("bash", "console") for one in self.of(kind, section=section)]
        return [command for block in blocks for command in block.commands]

    def inline(self) -> list[str]:
        """The commands that stand in its sentences, each once, in their order."""
        found = (" ".join(command.split()) for command in _INLINE.findall(self.text))
        return list(dict.fromkeys(found))

    def left(self) -> list[str]:
        """The runnable blocks that nobody has asked for yet, one line each."""
        return [str(one) for one in self.blocks if one.is_runnable and one not in self._taken]

    def section(self, title: str) -> str:
        """The text below a title, as it is written, up to the next one."""
        found = re.search(
            rf"^{re.escape(title)}\n[=~-]+\n(.*?)(?=^\S[^\n]*\n[=~-]{{3,}}\n|\Z)",
            self.text,
            re.MULTILINE | re.DOTALL,
        )
        assert found, f"no section {title} in {self.name}"
        return found[1]

    def rows(self, title: str) -> list[list[str]]:
        """The cells of each row of a section's table, as they are written, the head first."""
        return [
            [" ".join(cell.split()) for cell in _CELL.split(row)[1:]]
            for row in _ROW.findall(self.section(title))
        ]


def run(command: str, app: Any, *, known: dict[str, str] | None = None) -> Result:
    """Run a ``celery -A proj reliable …`` of a page with an app of this process.

    `known` says what its words in capitals stand for.
    """
    words = [(known or {}).get(word, word) for word in shlex.split(command)]
    assert words[:4] == ["celery", "-A", "proj", "reliable"], command
    assert words[4] != "metrics" or "--help" in words, f"{command} serves until it is ended"
    return invoke(app, *words[4:])


def pages() -> list[str]:
    """The names of all pages: those below `docs`, and the others."""
    found = (path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.rst"))
    return [*_FRONT, *sorted(found)]


def page_path(name: str) -> Path:
    """The file of a page."""
    return (ROOT if name in _FRONT else DOCS) / name


def claims(folder: Path) -> dict[str, list[str]]:
    """The pages that the test modules below a folder claim, and who claims each."""
    found: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("test_*.py")):
        named = re.search(r"^PAGES = (\(.*?\))$", path.read_text("utf-8"), re.MULTILINE | re.DOTALL)
        for name in ast.literal_eval(named[1]) if named else ():
            found.setdefault(name, []).append(path.relative_to(folder).as_posix())
    return found


@cache
def doctree(path: Path) -> nodes.document:
    """What docutils makes of a page; what only Sphinx knows is left out."""
    for name in ("code-block", "sourcecode", "code"):
        directives.register_directive(name, _Code)
    for name in ("deprecated", "seealso", "versionadded", "versionchanged"):
        directives.register_directive(name, _Around)
    settings = {
        "report_level": 5,
        "halt_level": 5,
        "file_insertion_enabled": False,
        "syntax_highlight": "none",
    }
    return publish_doctree(
        path.read_text("utf-8"), source_path=str(path), settings_overrides=settings
    )


@cache
def _blocks(path: Path, name: str) -> tuple[Block, ...]:
    return tuple(
        Block(
            name,
            "pycon" if isinstance(node, nodes.doctest_block) else node.get("language", ""),
            node.astext() + "\n",
            node.get("begins", node.line or 0),
            _titles(node),
            node.get("caption", ""),
        )
        for node in doctree(path).findall()
        if isinstance(node, (nodes.literal_block, nodes.doctest_block))
        and not isinstance(node.parent, nodes.system_message)
    )


def _titles(node: Any) -> tuple[str, ...]:
    if node is None:
        return ()
    own = [one.astext() for one in node.children if isinstance(one, nodes.title)]
    return (*_titles(node.parent), *own)


class _Code(Directive):
    """`code-block` as Sphinx has it."""

    has_content = True
    optional_arguments = 1
    option_spec = dict.fromkeys(_OPTIONS, directives.unchanged)

    def run(self) -> list[nodes.Node]:
        text = "\n".join(self.content)
        block = nodes.literal_block(text, text)
        block["language"] = self.arguments[0].strip() if self.arguments else ""
        block["begins"] = self.content_offset + 1
        block["caption"] = self.options.get("caption", "")
        return [block]


class _Around(Directive):
    """A directive of Sphinx's with blocks in it."""

    has_content = True
    optional_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        around = nodes.container()
        self.state.nested_parse(self.content, self.content_offset, around)
        return [around]

"""Parts of a page that a program writes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from textwrap import fill

_WRITTEN = ".. Written by ``python -m docs.writing``; a test compares it with the code.\n"


def head(title: str, text: str) -> str:
    """The head of a page."""
    return f"{title}\n{'=' * len(title)}\n\n{_WRITTEN}\n{prose(text)}\n"


def section(title: str, text: str, line: str = "-") -> str:
    """A section of a page."""
    return f"{title}\n{line * len(title)}\n\n{text}\n"


def table(columns: list[str], rows: Iterable[list[str]], widths: str) -> str:
    """A list table."""
    lines = [".. list-table::", "   :header-rows: 1", f"   :widths: {widths}", ""]
    for cells in [columns, *rows]:
        first, *others = (f"- {cell}".rstrip() for cell in cells)
        lines += [f"   * {first}", *(f"     {cell}" for cell in others)]
    return "\n".join(lines) + "\n"


def prose(text: str | None) -> str:
    """Paragraphs as they are, without what they are indented by."""
    return _marked(inspect.cleandoc(text or "")) + "\n"


def one_line(text: str | None) -> str:
    """A text as the cell of a table."""
    return " ".join(_marked(text or "").split())


def filled(text: str, width: int, indent: str = "") -> str:
    """A text in lines of this width; no word is broken."""
    return fill(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def indented(text: str) -> str:
    """A text as what a term is explained by."""
    return "".join(f"   {line}\n" if line else "\n" for line in text.splitlines())


def as_code(value: object) -> str:
    """A value as code has it."""
    return f'``"{value}"``' if isinstance(value, str) else f"``{value}``"


def _marked(text: str) -> str:
    """A docstring's text as a page has it: what is in single backquotes is code."""
    return re.sub(r"(?<![`:\w])`([^`\n]+)`(?!`)", r"``\1``", text)

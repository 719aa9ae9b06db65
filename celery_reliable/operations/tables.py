"""What a terminal shows of many things: columns that keep their width, and text by which nobody can
direct a terminal or add a line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["print_list", "print_pairs", "printable"]

_GAP = 2
_INDENT = 4
#: A terminal that is too narrow for that wraps by itself.
_LEAST_WIDTH = 20


def print_pairs(console: Any, pairs: Sequence[tuple[str, str]]) -> None:
    """Print names and what they are; that is folded, the names are not."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for pair in pairs:
        table.add_row(*[Text(printable(cell)) for cell in pair])
    console.print(table)


def print_list(
    console: Any,
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    abouts: Sequence[list[str]],
) -> None:
    """Print *rows* of short cells, and below each the lines *about* it, over the whole width: in a
    column of their own they would be folded to shreds.  Only the first cell is folded; nothing is
    cut.
    """
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    cells = [titles, *[[printable(cell) for cell in row] for row in rows]]
    widths = [max(len(row[index]) for row in cells) for index in range(len(titles))]
    rest = sum(widths[1:]) + _GAP * len(widths[1:])
    widths[0] = min(widths[0], max(_LEAST_WIDTH, console.width - rest))
    for row, about in zip(cells, [[], *abouts], strict=True):
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, _GAP, 0, 0))
        for width in widths:
            table.add_column(min_width=width, max_width=width, overflow="fold")
        table.add_row(*[Text(cell, "bold" if row is titles else "") for cell in row])
        console.print(table)
        for line in filter(None, about):
            console.print(Padding(Text(printable(line)), (0, 0, 0, _INDENT)))


def printable(text: str, *, keeps: str = "") -> str:
    """Return *text* on one line, with an escape for each character that a terminal would obey:
    anybody may have published it.  The characters that it *keeps* stay as they are.
    """
    return "".join(
        char if char.isprintable() or char in keeps else repr(char)[1:-1] for char in text
    )

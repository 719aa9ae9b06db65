"""Mutants of the package's own Python: a statement that is left out, or comes earlier or later."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PACKAGE", "Change", "Mutant", "Table", "drop", "move", "swap"]

PACKAGE = Path(__file__).parents[2] / "celery_reliable"

_Block = list[ast.stmt]
_Found = tuple[_Block, int]
_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True)
class Change:
    """What becomes of a statement, which is told by how its text begins.

    Of several that begin like this, *nth* is meant; else there has to be one.  It is left out,
    changes places with *other*, or goes in front of *other*, or behind it.
    """

    how: str
    text: str
    other: str = ""
    nth: int = 0
    nth_other: int = 0

    def apply(self, function: ast.AST) -> None:
        """Change a function; raises LookupError when a statement is not there, or several are."""
        block, at = _found(function, self.text, self.nth)
        if self.how == "drop":
            block[at] = ast.Pass()
            return
        other_block, other_at = _found(function, self.other, self.nth_other)
        one, other = block[at], other_block[other_at]
        if _is_within(other, one) or (self.how == "swap" and _is_within(one, other)):
            raise LookupError(f"one is within the other: {self.text} | {self.other}")
        if self.how == "swap":
            block[at], other_block[other_at] = other, one
            return
        block[at] = ast.Pass()
        other_at = next(i for i, node in enumerate(other_block) if node is other)
        other_block.insert(other_at + (self.how == "behind"), one)


def drop(text: str, nth: int = 0) -> Change:
    """Leave a statement out, with all that is inside it."""
    return Change("drop", text, nth=nth)


def swap(text: str, other: str) -> Change:
    """Let two statements change places."""
    return Change("swap", text, other)


def move(text: str, *, behind: str = "", before: str = "", nth: int = 0, nth_to: int = 0) -> Change:
    """Do a statement later, or earlier."""
    how = "behind" if behind else "before"
    return Change(how, text, behind or before, nth, nth_to)


#: Mutants by the path in the package and the function there: what the fault is, how it is made, and
#: the tests that may see it.
Table = dict[str, dict[str, list[tuple[str, Change, tuple[str, ...]]]]]


@dataclass(frozen=True)
class Mutant:
    """One function with one fault of order.

    *near* are the tests among which one is looked for that kills it; the random worlds where there
    are none.
    """

    key: str
    #: The path in the package, and the function there: ``guarded.run``, ``Caller.run``.
    path: str
    function: str
    change: Change
    near: tuple[str, ...] = ()

    def text(self) -> str:
        """Return the module with this fault; raises LookupError when it is not as expected."""
        tree = ast.parse((PACKAGE / self.path).read_text())
        before = ast.unparse(tree)
        try:
            self.change.apply(_function(tree, self.function))
        except LookupError as exc:
            raise LookupError(f"{self.key}: {self.path}: {self.function}: {exc}") from None
        text = ast.unparse(ast.fix_missing_locations(tree))
        if text == before:
            raise LookupError(f"{self.key}: nothing is changed")
        return text


def _is_within(inner: ast.stmt, outer: ast.stmt) -> bool:
    return any(node is inner for node in ast.walk(outer))


def _function(tree: ast.AST, name: str) -> ast.AST:
    for part in name.split("."):
        found = [
            node
            for node in ast.walk(tree)
            if isinstance(node, _NAMED) and node.name == part and node is not tree
        ]
        if len(found) != 1:
            raise LookupError(f"{part} is there {len(found)} times")
        (tree,) = found
    return tree


def _found(function: ast.AST, text: str, nth: int) -> _Found:
    """Return the block and the index of the statement that begins with *text*."""
    wanted = text.replace('"', "'")
    found = [
        (block, at)
        for block in _blocks(function)
        for at, statement in enumerate(block)
        if ast.unparse(statement).startswith(wanted)
    ]
    if not nth and len(found) != 1:
        raise LookupError(f"{len(found)} statements begin like this: {text}")
    if nth > len(found):
        raise LookupError(f"{len(found)} statements begin like this, and not {nth}: {text}")
    return found[nth - 1 if nth else 0]


def _blocks(node: ast.AST) -> list[_Block]:
    """Return all blocks of a function, in the order of its text."""
    blocks = []
    for name in ("body", "handlers", "orelse", "finalbody"):
        inner = getattr(node, name, None)
        if not isinstance(inner, list):
            continue
        if name != "handlers":
            blocks.append(inner)
        for one in list(inner):
            blocks += _blocks(one)
    return blocks

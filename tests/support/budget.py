"""How much code the package has, beside what it may have: `python -m tests.support.budget`.

A line is a statement as `ast` writes it, and one more for each 90 characters of it, so that no
layout of the text changes the count.  Blank lines, comments, docstrings, imports and `__all__` do
not count.  `[budget]` in setup.cfg says what each part may have.  Whoever raises a number gives the
reason in the commit's message.
"""

from __future__ import annotations

import ast
import configparser
import sys
from collections import Counter
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PACKAGE = REPOSITORY / "celery_reliable"
_WIDTH = 90


def code_lines(source: str) -> int:
    """Return the number of lines of code in a module's text."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            body[:] = [one for one in body if _counts(one)] or [ast.Pass()]
    lines = ast.unparse(tree).splitlines()
    return sum(-(-len(line.strip()) // _WIDTH) for line in lines)


def _counts(node: ast.stmt) -> bool:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return False
    if isinstance(node, ast.Assign):
        return not any(isinstance(to, ast.Name) and to.id == "__all__" for to in node.targets)
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return not (is_text and isinstance(node.value.value, str))


def sizes() -> dict[str, int]:
    """Return the lines of code of each part of the package."""
    found: Counter[str] = Counter()
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).parts
        name = f"{PACKAGE.name}/{parts[0]}" if len(parts) > 1 else f"{PACKAGE.name}/*.py"
        found[name] += code_lines(path.read_text("utf-8"))
    return dict(found)


def budget() -> dict[str, int]:
    """Return what each part may have."""
    settings = configparser.ConfigParser()
    settings.read(REPOSITORY / "setup.cfg")
    return {name: int(lines) for name, lines in settings["budget"].items()}


def main() -> int:
    """Print both; 1 where a part has more than it may."""
    may, has = budget(), sizes()
    over = []
    for name, lines in sorted(has.items(), key=lambda item: -item[1]):
        allowed = may.get(name, 0)
        print(f"{lines:6} of {allowed:6}  {name}")
        if lines > allowed:
            over.append(name)
    print(f"{sum(has.values()):6} of {sum(may.values()):6}  in all")
    for name in over:
        print(f"{name} has outgrown [budget] in setup.cfg.", file=sys.stderr)
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())

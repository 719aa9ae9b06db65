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


def main() -> int:
    """Print both; 1 where a part has more than it may."""
    settings = configparser.ConfigParser()
    settings.read(REPOSITORY / "setup.cfg")
    may = Counter({name: int(lines) for name, lines in settings["budget"].items()})
    has: Counter[str] = Counter()
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).parts
        name = f"{PACKAGE.name}/{parts[0]}" if len(parts) > 1 else f"{PACKAGE.name}/*.py"
        has[name] += code_lines(path.read_text("utf-8"))
    for name, lines in has.most_common():
        print(f"{lines:6} of {may[name]:6}  {name}")
    print(f"{has.total():6} of {may.total():6}  in all")
    for name in has - may:
        print(f"{name} has outgrown [budget] in setup.cfg.", file=sys.stderr)
    return 1 if has - may else 0


if __name__ == "__main__":
    sys.exit(main())

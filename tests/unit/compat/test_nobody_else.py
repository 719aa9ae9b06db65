"""No class outside `celery_reliable.compat` touches what those it derives from keep to themselves;
of other objects ruff says so (SLF001).
"""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import celery_reliable

ROOT = Path(celery_reliable.__file__).parent


def _trees() -> Iterator[tuple[str, ast.Module]]:
    for file in sorted(ROOT.rglob("*.py")):
        name = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if name != "__init__" and not name.startswith("compat"):
            yield name, ast.parse(file.read_text("utf-8"))


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


@cache
def _class_of(cls: Any) -> ast.AST:
    """Return the code of a class; nothing of one that was made while the program runs."""
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(cls)))
    except (OSError, TypeError):
        return ast.Module([], [])


@cache
def _foreign_names(cls: Any) -> frozenset[str]:
    """Return the private names that classes of others have which *cls* derives from."""
    names: set[str] = set()
    for one in inspect.getmro(cls):
        if one.__module__.partition(".")[0] not in ("celery", "kombu", "billiard", "redis"):
            continue
        names.update(vars(one))
        for node in ast.walk(_class_of(one)):
            if isinstance(node, ast.Attribute) and _is_self(node.value):
                names.add(node.attr)
    return frozenset(name for name in names if name.startswith("_") and not name.endswith("__"))


def test_no_class_touches_a_private_name_of_those_it_derives_from() -> None:
    found = []
    for module, tree in _trees():
        if module.startswith("contrib"):
            continue
        loaded = importlib.import_module(f"celery_reliable.{module}".rstrip("."))
        for node in tree.body:
            if not isinstance(node, ast.ClassDef):
                continue
            names = _foreign_names(getattr(loaded, node.name))
            for one in ast.walk(node):
                is_own = isinstance(one, ast.Attribute) and _is_self(one.value)
                if is_own and one.attr in names:
                    found.append(f"{module}:{one.lineno} self.{one.attr}")
                if isinstance(one, ast.FunctionDef) and one.name in names:
                    found.append(f"{module}:{one.lineno} def {one.name}")
    assert found == []

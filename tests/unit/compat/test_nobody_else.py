"""Nobody but `celery_reliable.compat` touches what other packages keep to themselves."""

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

#: What looks like it and is not, and why.
REVIEWED = {
    ("beat", "_kept.sweeper"): "a local of our own threads",
    ("contrib.django.desk.visits", "self.request.current_app"): "as Django's manual says",
    ("contrib.django.desk.forms", "field.widget"): "the same",
    ("contrib.django.checks", "one._meta"): "as Django's manual says",
    ("contrib.django.desk.reading", "model._meta"): "the same",
    ("contrib.django.rows.model", "TaskRow._meta"): "the same",
    ("contrib.django.rows.model", "model._meta"): "the same",
    ("contrib.django.rows.places", "row.model._meta"): "the same",
    ("contrib.django.rows.places", "model._base_manager"): "the same",
    ("contrib.django.rows.reconciling", "one._meta"): "the same",
    ("contrib.django.rows.reconciling", "model._meta"): "the same",
    ("contrib.django.rows.attempts", "setattr(self.row)"): "columns that the user names",
    ("contrib.django.rows.attempts", "setattr(row)"): "columns of `TaskRow`",
    ("attempt.fencing", "run._is_guarded"): "a function of ours, around a task's body",
    ("attempt.fencing", "getattr(function, '_is_guarded')"): "the same",
    ("publishing.amqp", "pool.limit"): "public, of kombu's pool",
    ("worker.startup", "conf.broker_transport"): "a setting of Celery's, and set back",
    ("log", "record.exc_info"): "a filter may change a record",
    ("ledger.startup_test", "self.workers._caller"): "two classes of the ledger",
    ("recovery.announcements", "context.chord"): "of a request that we have made",
    ("results.backend", "setattr(request)"): "the same",
    ("options.values", "getattr(type(task), '_reliable_object')"): "an attribute of ReliableTask",
}


def _trees() -> Iterator[tuple[str, ast.Module]]:
    for file in sorted(ROOT.rglob("*.py")):
        name = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if name != "__init__" and not name.startswith("compat"):
            yield name, ast.parse(file.read_text("utf-8"))


def _is_private(name: str) -> bool:
    # Those of named tuples are public: the underscore keeps them apart from fields.
    return (name.startswith("_") and not name.endswith("__")) and name not in (
        "_replace",
        "_fields",
        "_asdict",
    )


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


@cache
def _own_attributes() -> frozenset[str]:
    """Return the names of what the package's own classes and dataclasses have."""
    names: set[str] = set()
    for _, tree in _trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                for one in ast.walk(node):
                    if isinstance(one, ast.Attribute) and _is_self(one.value):
                        names.add(one.attr)
                for one in node.body:
                    if isinstance(one, ast.FunctionDef):
                        names.update([one.name] if one.decorator_list else [])
                    if isinstance(one, ast.AnnAssign | ast.Assign):
                        targets = [one.target] if isinstance(one, ast.AnnAssign) else one.targets
                        names.update(t.id for t in targets if isinstance(t, ast.Name))
    return frozenset(names)


def _touched(tree: ast.Module) -> Iterator[str]:
    """Yield what a module touches of objects that are not its own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield from _of_attribute(node)
        elif isinstance(node, ast.Call):
            yield from _of_call(node)
        elif isinstance(node, ast.ImportFrom):
            is_own = (node.module or "").startswith("celery_reliable")
            for alias in node.names:
                if _is_private(alias.name) and not is_own:
                    yield f"from {node.module} import {alias.name}"


def _of_attribute(node: ast.Attribute) -> Iterator[str]:
    if _is_self(node.value):
        return
    is_set = isinstance(node.ctx, ast.Store | ast.Del)
    if (
        _is_private(node.attr)
        or (is_set and node.attr not in _own_attributes())
        or (is_set and node.attr == "__class__")
    ):
        yield ast.unparse(node)


def _of_call(node: ast.Call) -> Iterator[str]:
    called = ast.unparse(node.func)
    if called == "object.__new__":
        yield ast.unparse(node)
    if called not in ("getattr", "setattr", "hasattr", "delattr", "vars") or not node.args:
        return
    thing, name = node.args[0], node.args[1] if len(node.args) > 1 else None
    if isinstance(name, ast.Constant):
        if _is_private(str(name.value)):
            yield f"{called}({ast.unparse(thing)}, {name.value!r})"
    elif called in ("setattr", "delattr", "vars"):
        yield f"{called}({ast.unparse(thing)})"


def test_no_other_module_touches_a_private_name() -> None:
    found = {(module, what) for module, tree in _trees() for what in _touched(tree)}
    assert found - set(REVIEWED) == set()
    assert set(REVIEWED) - found == set(), "reviewed, and not there any more"


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
    return frozenset(name for name in names if _is_private(name))


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

"""The hooks into other packages: each name that is relied on is there, and one that is missing is
told of; nobody but `celery_reliable.compat` touches what others keep to themselves.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, states
from celery.app.amqp import AMQP
from celery.app.task import Context
from celery.worker.request import Request

import celery_reliable
from celery_reliable import ConfigurationError, ConfigurationWarning, ReliableTask, compat
from celery_reliable.compat import relied
from celery_reliable.compat.backend import MarkingBackend
from celery_reliable.compat.relied import HOOKS, Hook, Name, Part, Used
from celery_reliable.results.fenced import under_class

#: What belongs to another function of its module, or needs no private name; and types.
_BESIDE = {
    "ProcessLife", "Traced", "Tracer", "ask", "counts_chords", "has_job",
    "has_something_to_read", "keep_connection", "kept_connection", "note",
    "noted", "priority_of", "reply", "task_ids_of", "turn_into",
}  # fmt: skip

#: All of them, so that each hook is declared before a test puts others in their place.
MODULES = [
    import_module(f"{compat.__name__}.{info.name}")
    for info in pkgutil.iter_modules(compat.__path__)
    if info.name != "relied"
]
EACH = [
    pytest.param(hook, one, id=f"{hook.name.removeprefix('celery_reliable.compat.')}-{n}")
    for hook in HOOKS
    for n, one in enumerate(hook.relied)
]


def test_what_is_installed_has_all_of_it() -> None:
    assert list(compat.missing(Part)) == []


def _renamed(one: Any) -> Any:
    """Return *one* as it is looked for once another release has no such thing."""
    if isinstance(one, Used):
        return replace(one, name=f"{one.name}_of_another_release")
    return replace(one, path=f"{one.path}_of_another_release")


def _told(monkeypatch: pytest.MonkeyPatch, hook: Hook, one: Any) -> list[Any]:
    """Return the findings about one thing that a hook relies on."""
    monkeypatch.setattr(relied, "HOOKS", [replace(hook, relied=(one,))])
    found = list(relied.missing({hook.part}))
    assert all(hook.without in finding.message for finding in found)
    return found


@pytest.mark.parametrize(("hook", "one"), EACH)
def test_what_is_missing_is_told(monkeypatch: pytest.MonkeyPatch, hook: Hook, one: Any) -> None:
    (finding,) = _told(monkeypatch, hook, _renamed(one))
    assert finding.severity == ("error" if hook.is_promise else "warning")
    assert re.search(r"celery \d+\.\d+.* redis \d+\.\d+", finding.message)
    if isinstance(one, Name):
        assert one.path.replace(":", ".") in finding.message
    else:
        assert one.name in finding.message
    if isinstance(one, Name) and one.takes:
        (finding,) = _told(monkeypatch, hook, replace(one, takes=("another", *one.takes)))
        assert "that takes" in finding.message


def test_nobody_is_refused_for_what_he_does_not_use(monkeypatch: pytest.MonkeyPatch) -> None:
    (hook, *_) = (one for one in HOOKS if one.part is Part.PREFORK and one.is_promise)
    assert {one.severity for one in _told(monkeypatch, hook, _renamed(hook.relied[0]))} == {"error"}
    assert list(compat.missing({Part.WORKER, Part.REDIS_BROKER})) == []


def test_each_function_of_the_folder_says_what_it_relies_on() -> None:
    known = {hook.function for hook in HOOKS}
    for module in MODULES:
        for name in module.__all__:
            assert name in _BESIDE or getattr(module, name) in known, name


@pytest.fixture
def app() -> Iterator[Celery]:
    """An app of this test's own, whose broker nobody asks."""
    made = Celery("it", broker="redis://127.0.0.1:1/0", set_as_current=False, fixups=())
    compat.require.cache_clear()
    yield made
    compat.require.cache_clear()
    made.close()


def work() -> None:
    """What nobody runs."""


def _declare(app: Celery) -> None:
    app.task(shared=False, base=ReliableTask, name="it.work")(work)


def test_a_task_is_refused_of_which_nothing_would_be_recorded(
    monkeypatch: pytest.MonkeyPatch, app: Celery
) -> None:
    monkeypatch.delattr(AMQP, "_create_task_sender")
    _declare(app)
    with pytest.raises(ConfigurationError, match=r"AMQP\._create_task_sender \(celery \d"):
        app.finalize()


def test_a_worker_is_refused_that_would_run_again_what_is_revoked(
    monkeypatch: pytest.MonkeyPatch, app: Celery
) -> None:
    _declare(app)
    app.finalize()
    monkeypatch.delattr(Request, "_announce_revoked")
    with pytest.raises(SystemExit, match=r"Request\._announce_revoked \(celery \d"):
        app.WorkController(app=app, pool="solo")


def test_of_what_no_promise_needs_a_producer_is_warned(
    monkeypatch: pytest.MonkeyPatch, app: Celery
) -> None:
    (hook,) = [one for one in HOOKS if one.function.__name__ == "forget_servers"]
    renamed = Used("celery.app.base:Celery", "_local_of_another_release")
    monkeypatch.setattr(relied, "HOOKS", [replace(hook, relied=(renamed,))])
    _declare(app)
    with pytest.warns(ConfigurationWarning, match="_local_of_another.*a test publishes"):
        app.finalize()


# -- of classes that derive from others'; of other objects ruff says so (SLF001)

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


# -- what is stored of a result is what Celery would store


class Marking(MarkingBackend):
    def more_fields(self, request: Any) -> dict[str, Any]:
        return {"mark": request.id}


def test_all_fields_and_their_order() -> None:
    app = Celery("it", backend="redis://127.0.0.1:1/0", set_as_current=False)
    request = Context(id="id", task="work", args=[1], kwargs={}, group="group", parent_id="parent")
    theirs = app.backend._get_result_meta({"a": 1}, states.SUCCESS, None, request)
    ours = under_class(app.backend, Marking).result_meta({"a": 1}, states.SUCCESS, request)
    assert theirs.pop("date_done") <= ours.pop("date_done")
    assert list(ours.items()) == [*theirs.items(), ("mark", "id")]
    assert next(iter(ours)) == "status"
    app.close()

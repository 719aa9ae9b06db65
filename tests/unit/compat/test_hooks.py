"""Each name of somebody else's that is relied on is there, and one that is missing is told of."""

from __future__ import annotations

import inspect
import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from importlib import import_module
from types import CodeType
from typing import Any

import pytest
from celery import Celery
from celery.app.amqp import AMQP
from celery.worker.request import Request

from celery_reliable import ConfigurationError, ConfigurationWarning, ReliableTask, compat
from celery_reliable.compat import relied
from celery_reliable.compat.relied import (
    HOOKS,
    Behaviour,
    Hook,
    Kept,
    Name,
    Part,
    Relied,
    Used,
)

#: What belongs to another function of its module, and types.
_BESIDE = {"ProcessLife", "SUCCESS_BEGINS", "Traced", "Tracer", "kept_connection", "noted"}

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


def _members(path: str) -> tuple[Any, str]:
    """Return the module or class that holds what *path* names, and its name there."""
    module, _, qualified = path.partition(":")
    *owners, name = qualified.split(".")
    found: Any = import_module(module)
    for owner in owners:
        found = getattr(found, owner)
    return found, name


def _remove(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    owner, name = _members(path)
    for one in inspect.getmro(owner) if inspect.isclass(owner) else [owner]:
        if name in vars(one):
            monkeypatch.delattr(one, name)


def _set_no_more(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """Let no instance of a class get the attribute that *path* names."""
    owner, name = _members(path)
    for one in inspect.getmro(owner):
        if isinstance(vars(one).get(name), property):
            monkeypatch.delattr(one, name)
    _install_another(monkeypatch, inspect.getmro(owner), lambda code: name in code.co_names)


def _another(self: Any, *, of_another_release: None = None) -> None:
    """What somebody may have made of it."""


def _install_another(
    monkeypatch: pytest.MonkeyPatch, owners: Iterable[Any], is_meant: Callable[[CodeType], bool]
) -> None:
    """Let a release with other functions, of those that are meant, be installed."""
    installed = relied._code_of_module
    modules = {getattr(one, "__module__", None) or one.__name__ for one in owners}

    def release(code: CodeType) -> CodeType:
        # Not the code of a class.
        if code.co_flags & inspect.CO_OPTIMIZED and is_meant(code):
            return _another.__code__.replace(co_name=code.co_name)
        inner = (release(one) if isinstance(one, CodeType) else one for one in code.co_consts)
        return code.replace(co_consts=tuple(inner))

    def another(module: str) -> CodeType | None:
        code = installed(module)
        return code if code is None or module not in modules else release(code)

    monkeypatch.setattr(relied, "_code_of_module", cache(another))


def _rewrite(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """Let a release with another function of this path be installed."""
    owner, name = _members(path)
    owners = inspect.getmro(owner) if inspect.isclass(owner) else [owner]
    _install_another(monkeypatch, owners, lambda code: code.co_name == name)


def _spoilt(monkeypatch: pytest.MonkeyPatch, one: Relied) -> Relied:
    """Return *one* as it is looked for once another release has no such thing."""
    if isinstance(one, Name | Kept) and one.path.startswith("logging:"):
        # pytest itself writes to the log meanwhile.
        return type(one)(f"{one.path}_of_another_release")
    if isinstance(one, Name):
        _remove(monkeypatch, one.path)
    elif isinstance(one, Kept):
        _set_no_more(monkeypatch, one.path)
    elif isinstance(one, Used):
        _rewrite(monkeypatch, one.by)
    else:
        assert isinstance(one, Behaviour)
        return Behaviour(one.what, lambda: False)
    return one


def _called(one: Relied) -> str:
    """Return what somebody has to be told of it."""
    if isinstance(one, Used):
        return one.name
    return one.what if isinstance(one, Behaviour) else one.path.replace(":", ".")


def _told(monkeypatch: pytest.MonkeyPatch, hook: Hook, one: Relied) -> list[Any]:
    """Return the findings about one thing that a hook relies on."""
    monkeypatch.setattr(relied, "HOOKS", [Hook(hook.function, (one,), hook.part, hook.is_promise)])
    found = list(relied.missing({hook.part}))
    assert all(hook.without in finding.message for finding in found)
    return found


@pytest.mark.parametrize(("hook", "one"), EACH)
def test_what_is_missing_is_told(monkeypatch: pytest.MonkeyPatch, hook: Hook, one: Relied) -> None:
    found = _told(monkeypatch, hook, _spoilt(monkeypatch, one))
    assert found
    for finding in found:
        assert finding.severity == ("error" if hook.is_promise else "warning")
        assert re.search(r"celery \d+\.\d+.* redis \d+\.\d+", finding.message)
    assert any(_called(one) in finding.message for finding in found)


@pytest.mark.parametrize(
    ("hook", "one"),
    [param for param in EACH if isinstance(param.values[1], Name) and param.values[1].takes],
)
def test_what_takes_something_else_is_told(
    monkeypatch: pytest.MonkeyPatch, hook: Hook, one: Name
) -> None:
    owner, name = _members(one.path)
    monkeypatch.setattr(owner, name, _another)
    _rewrite(monkeypatch, one.path)
    assert any("that takes" in finding.message for finding in _told(monkeypatch, hook, one))


def test_nobody_is_refused_for_what_he_does_not_use(monkeypatch: pytest.MonkeyPatch) -> None:
    _set_no_more(monkeypatch, "billiard.pool:Pool._cache")
    assert list(compat.missing({Part.WORKER, Part.REDIS_BROKER})) == []
    assert {finding.severity for finding in compat.missing({Part.PREFORK})} == {"error"}


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


def _declare(app: Celery) -> None:
    app.task(shared=False, base=ReliableTask, name="it.work")(_another)


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
    (hook,) = [one for one in HOOKS if one.function.__name__ == "fixups_of"]
    renamed = Kept("celery.app.base:Celery._fixups_of_another_release")
    monkeypatch.setattr(relied, "HOOKS", [replace(hook, relied=(renamed,))])
    _declare(app)
    with pytest.warns(ConfigurationWarning, match="Celery._fixups_of_another.*delay_on_commit"):
        app.finalize()

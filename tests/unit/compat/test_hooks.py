"""Each name of somebody else's that is relied on is there, and one that is missing is told of."""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
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


def _renamed(one: Any) -> Any:
    """Return *one* as it is looked for once another release has no such thing."""
    if isinstance(one, Behaviour):
        return replace(one, holds=lambda: False)
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
    if isinstance(one, Name | Kept):
        assert one.path.replace(":", ".") in finding.message
    else:
        assert (one.name if isinstance(one, Used) else one.what) in finding.message
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
    (hook,) = [one for one in HOOKS if one.function.__name__ == "fixups_of"]
    renamed = Kept("celery.app.base:Celery._fixups_of_another_release")
    monkeypatch.setattr(relied, "HOOKS", [replace(hook, relied=(renamed,))])
    _declare(app)
    with pytest.warns(ConfigurationWarning, match="Celery._fixups_of_another.*delay_on_commit"):
        app.finalize()

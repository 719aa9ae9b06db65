"""Celery's result backends: how a result is written."""

from __future__ import annotations

from datetime import datetime, timezone
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

from celery import Celery, states
from celery.app.task import Context
from celery.backends.base import DisabledBackend
from kombu.utils.json import dumps

from celery_reliable.compat.relied import Behaviour, Name, Part, relies_on

__all__ = [
    "SUCCESS_BEGINS",
    "MarkingBackend",
    "looks_alike",
    "result_meta",
    "run_errbacks",
]

_BASE = "celery.backends.base:Backend"
_KEYS = "celery.backends.base:BaseKeyValueStoreBackend"

#: How Celery's JSON of a success begins. Only the beginning tells: a result may contain the same
#: words.
SUCCESS_BEGINS = '{"status": "SUCCESS"'


@relies_on(
    Name(
        f"{_BASE}._get_result_meta",
        takes=("result", "state", "traceback", "request"),
        used_by=f"{_KEYS}._store_result",
    ),
    part=Part.WORKER,
)
class MarkingBackend:
    """Mixed into the class of a backend that keeps results as texts. A subclass adds fields to
    them.

    Overrides ``Backend._get_result_meta``: Celery has a setting for fields of its own only.
    Checked on Celery 5.6.3 and 5.7.0.  Without it a result does not name the attempt that stored
    it, and a lost attempt that had succeeded runs again.
    """

    def _get_result_meta(
        self, result: Any, state: Any, traceback: Any, request: Any, *args: Any, **kwargs: Any
    ) -> Any:
        meta = super()._get_result_meta(  # type: ignore[misc]
            result, state, traceback, request, *args, **kwargs
        )
        return {**meta, **self.more_fields(request)}

    def more_fields(self, request: Any) -> dict[str, Any]:
        """Return the fields that are stored besides Celery's own."""
        return {}


def _backend_on_trial() -> Any:
    """Return a backend, of an app that no shared task gets, by which Celery can be tried."""
    app = Celery(set_as_current=False, fixups=())
    # The first reliable task may be a shared one: then Celery goes through its apps just now.
    app.close()
    return DisabledBackend(app=app)


def _success_in_trial() -> str:
    backend = _backend_on_trial()
    text: str = dumps(backend._get_result_meta({}, "SUCCESS", None, None))
    return text


@relies_on(
    Behaviour(
        f"a success begins with {SUCCESS_BEGINS} in JSON",
        lambda: _success_in_trial().startswith(SUCCESS_BEGINS),
    ),
    part=Part.REDIS_RESULTS,
)
def result_meta(backend: Any, result: Any, state: str, request: Any) -> dict[str, Any]:
    """Return what a backend stores of an encoded result, without the task's id.

    Calls ``Backend._get_result_meta``: Celery stores what it makes of that, and shows it to nobody.
    Checked on Celery 5.6.3 and 5.7.0.  Without it a result cannot be stored with its settlement;
    and were it written otherwise, a success could be overwritten by a lost attempt's failure.
    """
    meta: dict[str, Any]
    if state in states.READY_STATES and looks_alike() and not _is_extended(backend.app):
        meta = _meta_at_once(backend, result, state, request)
        return {**meta, **backend.more_fields(request)}
    meta = backend._get_result_meta(result=result, state=state, traceback=None, request=request)
    return meta


@cache
def looks_alike() -> bool:
    """Whether Celery's fields of a result are those of `_meta_at_once`: the same, in the same
    order.  It is tried once.
    """
    for conf in ({}, {"timezone": "Asia/Kolkata"}, {"enable_utc": False}):
        backend = _backend_on_trial()
        backend.app.conf.update(conf)
        child = backend.app.AsyncResult("child", parent=backend.app.AsyncResult("parent"))
        for given in ({}, {"group": "a", "parent_id": "b", "children": [child]}):
            request = Context(id="id", **given)
            theirs = backend._get_result_meta({"a": 1}, states.SUCCESS, None, request)
            ours = _meta_at_once(backend, {"a": 1}, states.SUCCESS, request)
            dates = [datetime.fromisoformat(one.pop("date_done")) for one in (theirs, ours)]
            if list(theirs.items()) != list(ours.items()):
                return False
            if dates[0].utcoffset() != dates[1].utcoffset():
                return False
    return True


def _meta_at_once(backend: Any, result: Any, state: str, request: Any) -> dict[str, Any]:
    """Return what Celery's ``Backend._get_result_meta`` returns of a task that has ended, without
    ``result_extended``, in a quarter of the time: Celery besides asks whether the hour of UTC is
    one of two that are the same, and for a setting by the parts of its name.
    """
    meta = {
        "status": state,
        "result": result,
        "traceback": None,
        "children": backend.current_task_children(request),
        "date_done": datetime.now(timezone.utc).astimezone(backend.app.timezone).isoformat(),
    }
    if request and request.group:
        meta["group_id"] = request.group
    if request and request.parent_id:
        meta["parent_id"] = request.parent_id
    return meta


_extended: WeakKeyDictionary[Celery, bool] = WeakKeyDictionary()


def _is_extended(app: Celery) -> bool:
    """Whether results of *app* carry name and arguments, as it was configured first."""
    found = _extended.get(app)
    if found is None:
        found = _extended[app] = bool(app.conf.result_extended)
    return found


@relies_on(
    Name(
        f"{_BASE}._call_task_errbacks",
        takes=("request", "exc", "traceback"),
        used_by=f"{_BASE}.mark_as_failure",
    ),
    part=Part.WORKER,
)
def run_errbacks(backend: Any, request: Any, exc: Any, traceback: Any) -> None:
    """Call the errbacks of a task that has failed.

    Calls ``Backend._call_task_errbacks``: Celery does so within ``mark_as_failure``, which is
    repeated until the failure is stored.  Checked on Celery 5.6.3 and 5.7.0.  Without it errbacks
    are called as often as somebody tries to store a failure, or never.
    """
    backend._call_task_errbacks(request, exc, traceback)

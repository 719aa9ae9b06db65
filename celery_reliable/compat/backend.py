"""Celery's result backends: how a result is written."""

from __future__ import annotations

from typing import Any

from celery import Celery
from celery.backends.base import DisabledBackend
from kombu.utils.json import dumps

from celery_reliable.compat.relied import Behaviour, Name, Part, relies_on

__all__ = [
    "SUCCESS_BEGINS",
    "MarkingBackend",
    "run_errbacks",
]

_BASE = "celery.backends.base:Backend"
_KEYS = "celery.backends.base:BaseKeyValueStoreBackend"

#: How Celery's JSON of a success begins. Only the beginning tells: a result may contain the same
#: words.
SUCCESS_BEGINS = '{"status": "SUCCESS"'


def _success_in_trial() -> str:
    # An app that no shared task gets.
    app = Celery(set_as_current=False, fixups=())
    # The first reliable task may be a shared one: then Celery goes through its apps just now.
    app.close()
    text: str = dumps(DisabledBackend(app=app)._get_result_meta({}, "SUCCESS", None, None))
    return text


@relies_on(
    Name(
        f"{_BASE}._get_result_meta",
        takes=("result", "state", "traceback", "request"),
        used_by=f"{_KEYS}._store_result",
    ),
    Behaviour(
        f"a success begins with {SUCCESS_BEGINS} in JSON",
        lambda: _success_in_trial().startswith(SUCCESS_BEGINS),
    ),
    part=Part.WORKER,
)
class MarkingBackend:
    """Mixed into the class of a backend that keeps results as texts.  A subclass returns in
    `more_fields` what is stored besides Celery's own fields.

    Overrides ``Backend._get_result_meta``, and calls it for what is stored with its settlement:
    Celery has a setting for fields of its own only, and shows what it stores to nobody.  Checked on
    Celery 5.6.3 and 5.7.0.  Without it a result does not name the attempt that stored it, and a
    lost attempt that had succeeded runs again, or stores its failure over that.
    """

    def _get_result_meta(
        self, result: Any, state: Any, traceback: Any, request: Any, *args: Any, **kwargs: Any
    ) -> Any:
        meta = super()._get_result_meta(  # type: ignore[misc]
            result, state, traceback, request, *args, **kwargs
        )
        return {**meta, **self.more_fields(request)}  # type: ignore[attr-defined]

    def result_meta(self, result: Any, state: str, request: Any) -> dict[str, Any]:
        """Return what is stored of an encoded result, without the task's id."""
        meta: dict[str, Any] = self._get_result_meta(result, state, None, request)
        return meta


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

"""Celery's result backends: how a result is written, and how a chord is counted."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from contextvars import ContextVar
from functools import cache
from typing import Any

from celery import Celery
from celery.backends.base import DisabledBackend
from celery.backends.redis import RedisBackend
from kombu.utils.json import dumps
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from celery_reliable.compat.relied import Behaviour, Name, Part, Used, relies_on

__all__ = [
    "SUCCESS_BEGINS",
    "CleaningBackend",
    "MarkingBackend",
    "chord_progress",
    "counts_chords",
    "longest_text",
    "result_meta",
    "run_errbacks",
    "under_class",
]

_BASE = "celery.backends.base:Backend"
_KEYS = "celery.backends.base:BaseKeyValueStoreBackend"
_REDIS = "celery.backends.redis:RedisBackend"

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


#: Which errors of Redis's driver pass by themselves.
_PASS = (RedisConnectionError, RedisTimeoutError)
_CLEANUP_PAUSES_SECONDS = (0.1, 0.5, 2.0)


#: What was being handled when a member's end began to be counted: the member's own error.
_handled: ContextVar[BaseException | None] = ContextVar("celery_reliable_handled", default=None)


def _removes_counts_by_script() -> bool:
    if not hasattr(RedisBackend, "_chord_part_return_script"):
        # Celery 5.6 has no scripts.
        return True
    by_script = Name(f"{_REDIS}._chord_cleanup_script", used_by=f"{_REDIS}.on_chord_part_return")
    return not by_script.fault()


@relies_on(
    Behaviour(
        f"{_REDIS}.on_chord_part_return, if it has scripts, uses _chord_cleanup_script",
        _removes_counts_by_script,
    ),
    part=Part.REDIS_RESULTS,
)
class CleaningBackend:
    """Mixed into the class of a Redis backend: a chord's counts are removed with patience, and only
    when the body was sent, or has failed.

    Overrides ``RedisBackend._chord_cleanup_script``: Celery removes the counts when it has sent the
    body, and fails the body when that removal raises.  It does so in a ``finally``, also when its
    process is being ended as it sends the body.  Checked on Celery 5.7.0; 5.6.3 removes them
    otherwise, which is not mended.  Without it a body whose counts could not be removed is told to
    have failed, and runs; and one that was not sent is never sent.
    """

    def on_chord_part_return(self, *args: Any, **kwargs: Any) -> Any:
        """Count a member, and send the body after the last."""
        before = _handled.set(sys.exc_info()[1])
        try:
            return super().on_chord_part_return(*args, **kwargs)  # type: ignore[misc]
        finally:
            _handled.reset(before)

    @property
    def _chord_cleanup_script(self) -> Any:
        remove = super()._chord_cleanup_script  # type: ignore[misc]

        def patiently(*args: Any, **kwargs: Any) -> Any:
            if sys.exc_info()[1] is not _handled.get():
                # The body was not sent, nor its failure stored: the claim to do so expires.
                return None
            for pause in _CLEANUP_PAUSES_SECONDS:
                # Twice does no harm: it removes what has the token of the one who counted.
                with suppress(*_PASS):
                    return remove(*args, **kwargs)
                time.sleep(pause)
            with suppress(*_PASS):
                return remove(*args, **kwargs)
            # The counts expire.
            return None

        return patiently


@relies_on(
    Behaviour(
        "a backend is an object with a __dict__",
        lambda: bool(DisabledBackend(app=Celery(set_as_current=False, fixups=())).__dict__),
    ),
    part=Part.WORKER,
)
def under_class(backend: Any, ours: type[Any]) -> Any:
    """Return an object with *ours* before a backend's class, and all the backend's attributes.

    Makes an object that shares the backend's ``__dict__``: a backend is made by Celery, of a class
    that is the user's choice, and may have a connection.  Checked on Celery 5.6.3 and 5.7.0.
    Without it a result does not name the attempt that stored it.
    """
    own: Any = type(backend)
    view: Any = object.__new__(_under(own, ours))  # type: ignore[arg-type]
    view.__dict__ = backend.__dict__
    return view


@cache
def _under(own: Any, ours: Any) -> Any:
    return type(own.__name__, (ours, own), {})


def _success_in_trial() -> str:
    backend: Any = DisabledBackend(app=Celery(set_as_current=False, fixups=()))
    text: str = dumps(backend._get_result_meta({}, "SUCCESS", None, None))
    return text


@relies_on(
    Name(f"{_BASE}._get_result_meta", takes=("result", "state", "traceback", "request")),
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
    meta: dict[str, Any] = backend._get_result_meta(
        result=result, state=state, traceback=None, request=request
    )
    return meta


@relies_on(Name(f"{_REDIS}._MAX_STR_VALUE_SIZE", used_by=f"{_REDIS}.set"), part=Part.REDIS_RESULTS)
def longest_text(backend: Any) -> int:
    """Return how long a text a Redis backend stores at the most.

    Reads ``RedisBackend._MAX_STR_VALUE_SIZE``: the bound is Redis's, and its refusal Celery's own
    error.  Checked on Celery 5.6.3 and 5.7.0.  Without it an attempt whose result is too long is
    settled by nobody.
    """
    length: int = backend._MAX_STR_VALUE_SIZE
    return length


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


@relies_on(
    Name(f"{_REDIS}._chord_zset", used_by=f"{_REDIS}.on_chord_part_return"),
    part=Part.REDIS_RESULTS,
)
def counts_chords(backend: Any) -> bool:
    """Whether a backend counts a chord's members as they end, and each of them only once.

    Looks for ``RedisBackend._chord_zset``: Celery says of no backend how it counts.  Checked on
    Celery 5.6.3 and 5.7.0.  Without it a chord waits for ever when a member's process dies as it
    ends.
    """
    return hasattr(backend, "_chord_zset")


@relies_on(
    Name(f"{_REDIS}._chord_zset", used_by=f"{_REDIS}.on_chord_part_return"),
    *(Used(f"{_REDIS}.on_chord_part_return", suffix) for suffix in (".j", ".s", ".t")),
    part=Part.REDIS_RESULTS,
)
def chord_progress(backend: Any, group: str) -> tuple[int, int] | None:
    """Return how many members of a chord were counted, and how many there are; None when its
    counters are gone, as its body was sent.

    Reads the keys of a Redis backend that end in ``.j``, ``.s`` and ``.t``: Celery looks at them in
    scripts of its own.  Checked on Celery 5.6.3 and 5.7.0.  Without it a chord waits for ever when
    the process dies that was to send its body.
    """
    counted_key, size_key, added_key = (
        backend.get_key_for_group(group, suffix) for suffix in (".j", ".s", ".t")
    )
    client = backend.client
    size = client.get(size_key)
    if size is None:
        return None
    n_counted = client.zcard(counted_key) if backend._chord_zset else client.llen(counted_key)
    return int(n_counted), int(size) + int(client.get(added_key) or 0)

"""Results that name their attempt, and the ledger that refuses those of late attempts.

No clock can tell whose a stored result is: a worker's clock is not the ledger's.  A result that an
attempt stores names the attempt.  One that names none was stored by somebody else, or in a backend
that cannot keep a name.

Where the ledger's server keeps results, the ledger stores the outcome of an attempt that is settled
later, and refuses it once the attempt is no longer the current one.  So it does with what an
attempt stores before it ends; that it is retried, once the next attempt has begun; and with the
failure of a dead letter, once the letter has been replayed.

A worker may be cut off with the command under way.  When that arrives its successor may have ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from contextvars import ContextVar
from functools import cache
from typing import Any, NamedTuple, cast

from celery import Celery
from celery.backends.redis import RedisBackend, SentinelBackend
from celery.states import READY_STATES, SUCCESS
from kombu.utils.encoding import bytes_to_str
from kombu.utils.json import dumps

from celery_reliable.app import reliable_of
from celery_reliable.context import RunningAttempt, current_worker, is_forgotten, running
from celery_reliable.exceptions import LedgerForbidden, LedgerRefused, LedgerUnavailable
from celery_reliable.ledger import FOREVER, Ledger, answers, behind_sentinels, server_of
from celery_reliable.log import logger
from celery_reliable.message import looks_used_once
from celery_reliable.model import DeadLetter, Record, StoredResult
from celery_reliable.scoped import scoped

__all__ = [
    "MARK",
    "NOTHING",
    "FencedBackend",
    "SupersededError",
    "as_stored",
    "is_celerys_redis",
    "is_of",
    "is_on_ledger_server",
    "mark",
    "may_have_lived_before",
    "results_server_of",
    "seen",
    "store_state",
    "stored_by_ledger",
]


def is_celerys_redis(backend: Any) -> bool:
    """Whether results are kept on a Redis in Celery's own way: a subclass may have another."""
    return type(backend) in (RedisBackend, SentinelBackend)


def results_server_of(backend: Any) -> tuple[object, ...] | None:
    """Return the server that a backend keeps results on, as `Connector.server` has it; None where
    that cannot be told.
    """
    if not is_celerys_redis(backend):
        return None
    given = backend.connparams
    if type(backend) is SentinelBackend:
        options = backend.app.conf.result_backend_transport_options or {}
        nodes = [(one.get("host"), one.get("port")) for one in given.get("hosts") or ()]
        if not options.get("master_name"):
            return None
        given = {**given, "path": behind_sentinels(options["master_name"], nodes)}
    return server_of(given)


#: What `seen` returns where there is no result, or one that names its attempt.
NOTHING = "nothing"
#: The field of a result that names the attempt, or the burial, that it is of.
MARK = "reliable"


def mark(epoch: str, attempt: int, token: str) -> str:
    """Return the name of an attempt: its publication, its number, and the token of its claim."""
    return f"{epoch}/{attempt}/{token}"


def is_of(meta: Mapping[str, Any], record: Record) -> bool:
    """Whether a result was stored by the very attempt that a record names."""
    return bool(meta.get(MARK) == mark(record.epoch, record.attempt, record.token))


def may_have_lived_before(record: Record) -> bool:
    """Whether a task that had the same id before may have left a result."""
    return record.is_used or not looks_used_once(record.task_id)


def seen(meta: Mapping[str, Any]) -> str:
    """Return what identifies a result that names no attempt; `NOTHING` where there is none.

    Two that are stored under one id, one after the other, differ in the times that their workers
    gave them.
    """
    if meta.get(MARK) or meta.get("status") not in READY_STATES:
        return NOTHING
    return f"{meta['status']} {meta.get('date_done')}"


class _Storing(NamedTuple):
    app: Celery
    of: RunningAttempt | DeadLetter
    #: This is how it ends; else it may be left out.
    is_outcome: bool

    @property
    def task_id(self) -> str:
        return self.of.task_id if isinstance(self.of, DeadLetter) else self.of.claim.task_id


#: What is being stored just now.
_storing: ContextVar[_Storing | None] = ContextVar("celery_reliable_storing", default=None)


#: How the JSON of a success begins. Only the beginning tells: a result may contain the same words.
_SUCCESS_BEGINS = dumps({"status": SUCCESS})[:-1]
#: Redis stores no longer text, in bytes.
_LONGEST_TEXT = 512 * 1024 * 1024


def as_stored(
    backend: Any, task_id: str, value: str | bytes, expires_seconds: Any
) -> StoredResult | None:
    """Return a result as a Redis backend keeps it; None where it is too long.  Celery or Redis says
    so then.
    """
    if len(value) > _LONGEST_TEXT:
        return None
    return StoredResult(
        bytes_to_str(backend.get_key_for_task(task_id)),
        value,
        _SUCCESS_BEGINS if backend.serializer == "json" else "",
        int(expires_seconds or 0),
        int(backend.connparams.get("db") or 0),
    )


def under_class(backend: Any, ours: type[Any]) -> Any:
    """Return an object with *ours* before a backend's class, and all the backend's attributes.

    Celery makes a backend, of a class that is the user's choice, and it may have a connection.
    """
    view: Any = object.__new__(_under(type(backend), ours))  # type: ignore[arg-type]
    view.__dict__ = backend.__dict__
    return view


_under = cache(lambda own, ours: type(own.__name__, (ours, own), {}))


class SupersededError(Exception):
    """The outcome was not stored, as the attempt, or the dead letter, is not the current one.  Its
    text is the state of the record.
    """


def is_on_ledger_server(app: Celery, backend: Any) -> bool:
    """Whether a backend's results are on the ledger's server, in a way that its scripts know."""
    server = results_server_of(backend)
    return server is not None and server == reliable_of(app).ledger.connector.server


def stored_by_ledger(
    app: Celery, backend: Any, of: RunningAttempt | DeadLetter, *, is_outcome: bool = True
) -> AbstractContextManager[None]:
    """Let the ledger store what Celery stores inside of an attempt, or of a dead letter, where its
    server keeps results; elsewhere this does nothing.

    Raises SupersededError if the attempt is not the current one, or the letter has been replayed or
    discarded: what Celery does after it has stored a result is left out then.
    """
    if not is_on_ledger_server(app, backend):
        return nullcontext()
    return scoped(_storing, _Storing(app, of, is_outcome))


def store_state(task: Any, backend: Any, how: str, *args: Any, **kwargs: Any) -> Any:
    """Let Celery store the state of a task that has not ended, by its backend's method *how*.

    Nothing is stored of an attempt that is not the current one, or whose retry has begun.
    """
    attempt = running.get()
    if attempt is None:
        return getattr(backend, how)(*args, **kwargs)
    fenced = under_class(backend, FencedBackend) if is_celerys_redis(backend) else backend
    with suppress(SupersededError), stored_by_ledger(task.app, backend, attempt, is_outcome=False):
        return getattr(fenced, how)(*args, **kwargs)


class FencedBackend:
    """Mixed into the class of a Redis backend: within `stored_by_ledger` the ledger stores
    what is of the attempt's own task.
    """

    def set(self, key: Any, value: Any, expires: Any = None, **options: Any) -> Any:
        """Store a result, or whatever else.  Celery 5.6 has no *expires*."""
        backend, storing = cast(Any, self), _storing.get()
        if storing is not None and key == backend.get_key_for_task(storing.task_id):
            lasts = backend.expires if expires is None else expires
            stored = as_stored(backend, storing.task_id, value, lasts)
            if stored is not None and _is_stored(storing, stored):
                return None
        if expires is not None:
            options["expires"] = expires
        return super().set(key, value, **options)  # type: ignore[misc]


def _is_stored(storing: _Storing, stored: StoredResult) -> bool:
    app, of, is_outcome = storing
    ledger = reliable_of(app).ledger
    try:
        if isinstance(of, DeadLetter):
            answer = ledger.store(of, stored, patience_seconds=0)
        else:
            answer = ledger.store(
                of.claim,
                stored,
                # It has published itself again.
                is_retried=of.is_closed,
                patience_seconds=FOREVER if is_outcome else 0,
            )
    except LedgerForbidden as exc:
        logger.info("settled_in_two_steps id=%s error=%s", storing.task_id, exc)
        return False
    except LedgerUnavailable as exc:
        # It may be on its way, and must not be followed by one that nobody compares.  Celery and
        # the user's code know the driver's error.
        raise exc.__cause__ or exc from None
    except LedgerRefused:
        if is_outcome:
            raise
        # Celery asks once more, and raises what it always does.
        return False
    if isinstance(answer, answers.Fenced):
        raise SupersededError(answer.state)
    if isinstance(answer, answers.Gone) and (
        isinstance(of, DeadLetter) or not _is_lost(ledger, of)
    ):
        raise SupersededError("gone")
    return isinstance(answer, answers.Stored)


def _is_lost(ledger: Ledger, attempt: RunningAttempt) -> bool:
    """Whether the server has lost the record of an attempt that goes on: nobody else would store
    its outcome.
    """
    worker = current_worker()
    is_held = worker is not None and worker.surely_holds(attempt.claim.worker)
    return not attempt.is_closed and (is_held or is_forgotten(ledger, attempt))

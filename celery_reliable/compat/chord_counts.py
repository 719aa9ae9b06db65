"""How a Redis backend of Celery's counts a chord's members, and sends the body after the last."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from celery.backends.redis import RedisBackend
from kombu.utils.encoding import bytes_to_str
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.exceptions import WatchError

from celery_reliable.compat.relied import Behaviour, Name, Part, Used, relies_on

__all__ = ["CleaningBackend", "chord_progress", "counts_chords"]

_BASE = "celery.backends.base:Backend"
_REDIS = "celery.backends.redis:RedisBackend"

#: Which errors of Redis's driver pass by themselves.
_PASS = (RedisConnectionError, RedisTimeoutError)
_CLEANUP_PAUSES_SECONDS = (0.0, 0.1, 0.5, 2.0)


class _NotNow(BaseException):
    """On its way out of code that makes a failure of every Exception; its cause passes."""


@contextmanager
def _let_out(passes: Callable[[BaseException], bool]) -> Iterator[None]:
    """Let an error that passes out of the code that asked."""
    try:
        yield
    except Exception as exc:
        if passes(exc):
            raise _NotNow from exc
        raise


@dataclass
class _Counting:
    """A member's end, as its chord is told of it."""

    #: What was being handled by then: the member's own error.
    handled: BaseException | None
    #: By which the right to send the body would be claimed.
    token: str = ""
    #: The members' results are joined, and the body is about to be sent.
    is_sending: bool = False
    #: The body is made a failure.
    is_failing: bool = False


_counting: ContextVar[_Counting | None] = ContextVar("celery_reliable_counting", default=None)
#: The tokens by which this process claimed to send a body that it could not send, by the group.
_unsent: dict[str, str] = {}


class _Keeping:
    """A Redis client from which an error that passes goes out of the code that asked, and by that
    nothing is removed.
    """

    def __init__(self, client: Any, passes: Callable[[BaseException], bool]) -> None:
        self._client = client
        self._passes = passes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def delete(self, *keys: Any) -> Any:
        """Remove keys, but not on the way out."""
        return 0 if isinstance(sys.exc_info()[1], _NotNow) else self._client.delete(*keys)

    @contextmanager
    def pipeline(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        """Return a pipeline of the client's."""
        with _let_out(self._passes), self._client.pipeline(*args, **kwargs) as pipe:
            yield pipe


#: What Celery counts, claims and removes by.
_USED = (
    "_chord_part_return_script",
    "_chord_claim_extend_script",
    "_chord_cleanup_script",
    "chord_error_from_stack",
    "client",
)


def _counts_by_script() -> bool:
    return hasattr(RedisBackend, "_chord_part_return_script")


@relies_on(
    Behaviour(
        f"{_REDIS}.on_chord_part_return, if it has scripts, counts, claims and removes by them",
        # Celery 5.6 has no scripts.
        lambda: (
            not (
                _counts_by_script()
                and any(
                    Name(f"{_REDIS}.{name}", used_by=f"{_REDIS}.on_chord_part_return").fault()
                    for name in _USED
                )
            )
        ),
    ),
    Name(
        f"{_BASE}._call_task_errbacks",
        takes=("request", "exc", "traceback"),
        used_by=f"{_BASE}.chord_error_from_stack",
    ),
    part=Part.REDIS_RESULTS,
)
class CleaningBackend:
    """Mixed into the class of a Redis backend: a chord's counts are removed with patience, and only
    when the body was sent, or its failure was stored.

    Overrides ``client``, ``chord_error_from_stack`` and the three scripts of
    ``RedisBackend.on_chord_part_return``: Celery removes the counts in a ``finally``, also when its
    process is being ended as it sends the body.  It fails a body that was sent when that removal
    raises, and one that a server did not take for a moment; when the server does not take the
    failure either, it removes the counts all the same.  Checked on Celery 5.7.0; 5.6.3 counts
    otherwise, which is not mended.  Without it a body whose counts could not be removed is told to
    have failed, and runs; and one that was not sent is never sent.
    """

    #: Whether an error says nothing of the chord, and may not come again.
    passes: Callable[[BaseException], bool]

    def on_chord_part_return(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """Count a member, and send the body after the last.

        Raises the error by which the body could be neither sent nor failed: then this is to be
        called again.
        """
        self._give_back_claim(request.group)
        if not _counts_by_script():
            return super().on_chord_part_return(request, *args, **kwargs)  # type: ignore[misc]
        counting = _Counting(sys.exc_info()[1])
        before = _counting.set(counting)
        try:
            return super().on_chord_part_return(request, *args, **kwargs)  # type: ignore[misc]
        except _NotNow as away:
            _unsent[request.group] = counting.token
            raise (away.__cause__ or away) from None
        finally:
            _counting.reset(before)

    def chord_error_from_stack(self, callback: Any, exc: Any = None) -> Any:
        """Fail a chord's body, unless what kept it from being sent passes."""
        counting, handled = _counting.get(), sys.exc_info()[1]
        if counting is None:
            return super().chord_error_from_stack(callback, exc)  # type: ignore[misc]
        # Before that it may be a member's error, which Celery raises again as it joins them.
        if counting.is_sending and isinstance(handled, Exception) and self.passes(handled):
            raise _NotNow from handled
        counting.is_failing = True
        with _let_out(self.passes):
            return super().chord_error_from_stack(callback, exc)  # type: ignore[misc]

    def _call_task_errbacks(self, request: Any, exc: Any, traceback: Any) -> Any:
        counting = _counting.get()
        is_failing = counting is not None and counting.is_failing
        # Celery would store an error of this in place of the chord's.
        with _let_out(self.passes) if is_failing else nullcontext():
            return super()._call_task_errbacks(request, exc, traceback)  # type: ignore[misc]

    @property
    def client(self) -> Any:
        """The backend's own client."""
        client, counting = super().client, _counting.get()  # type: ignore[misc]
        if counting is None or counting.is_failing:
            return client
        return _Keeping(client, self.passes)

    @property
    def _chord_part_return_script(self) -> Any:
        count = super()._chord_part_return_script  # type: ignore[misc]
        counting = _counting.get()

        def counted(*, keys: Any, args: Any, client: Any) -> Any:
            if counting is not None:
                counting.token = args[-1]
            return count(keys=keys, args=args, client=client)

        return counted

    @property
    def _chord_claim_extend_script(self) -> Any:
        counting = _counting.get()
        if counting is not None:
            counting.is_sending = True
        return super()._chord_claim_extend_script  # type: ignore[misc]

    @property
    def _chord_cleanup_script(self) -> Any:
        remove = super()._chord_cleanup_script  # type: ignore[misc]
        counting = _counting.get()

        def patiently(*args: Any, **kwargs: Any) -> Any:
            if counting is not None and sys.exc_info()[1] is not counting.handled:
                # The body was not sent, nor its failure stored.
                return None
            for pause in _CLEANUP_PAUSES_SECONDS:
                time.sleep(pause)
                # Twice does no harm: it removes what has the token of the one who counted.
                with suppress(*_PASS):
                    return remove(*args, **kwargs)
            # The counts expire.
            return None

        return patiently

    def _give_back_claim(self, group: str) -> None:
        """Give back the claim to send a body by which this process could not send it: by that the
        next call would be told that somebody else does.

        Raises what the backend's driver raises.
        """
        token = _unsent.get(group)
        if token is None:
            return
        backend: Any = self
        claim = backend.get_key_for_group(group, ".c")
        with backend.client.pipeline() as pipe, suppress(WatchError):
            pipe.watch(claim)
            if bytes_to_str(pipe.get(claim)) == token:
                pipe.multi()
                pipe.delete(claim)
                pipe.execute()
        del _unsent[group]


def counts_chords(backend: Any) -> bool:
    """Whether a backend counts a chord's members as they end, and each of them only once."""
    return hasattr(backend, "_chord_zset")


@relies_on(
    Name(f"{_REDIS}._chord_zset", used_by=f"{_REDIS}.on_chord_part_return"),
    *(Used(f"{_REDIS}.on_chord_part_return", suffix) for suffix in (".j", ".s", ".t")),
    part=Part.REDIS_RESULTS,
)
def chord_progress(backend: Any, group: str) -> tuple[int, int] | None:
    """Return how many members of a chord were counted, and how many there are; None when its
    counters are gone, as its body was sent.

    Reads the keys of a Redis backend that end in ``.j``, ``.s`` and ``.t``, which Celery looks at
    in scripts of its own, and ``RedisBackend._chord_zset``.  Checked on Celery 5.6.3 and 5.7.0.
    Without it a chord waits for ever when a member's process dies as it ends, or that which was to
    send the body.
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

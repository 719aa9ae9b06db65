"""A script and what it can answer: where replies of the server become types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from typing import Any, Generic, TypeVar, get_args

from celery_reliable.ledger.answers.base import Answer
from celery_reliable.ledger.answers.objects import OtherObject, Ripe
from celery_reliable.ledger.answers.tasks import Batch, Troubled
from celery_reliable.ledger.answers.workers import Beat
from celery_reliable.ledger.scripts import script, together
from celery_reliable.model import Due

__all__ = ["Step", "Together", "Transition", "encoded"]

A = TypeVar("A", bound=Answer)
Argument = str | int | float | bytes

#: What becomes of what UTF-8 cannot encode.
_UNENCODABLE = "backslashreplace"


class Transition(Generic[A]):
    """One script, and the union of its *answers*.

    *repeated*: a pair.  If a call was sent more than once and the script answers the first, an
    earlier copy of the call has done the second.  *frees*: the script may end a task and free its
    object, so it is called by `call_freeing_lock`.
    *keeps*: the script keeps what happened to the task, so `call_freeing_lock` is given an ending.
    """

    def __init__(
        self,
        name: str,
        answers: Any,
        *,
        repeated: tuple[()] | tuple[type[Answer], type[Answer]] = (),
        frees: bool = False,
        keeps: bool = False,
    ) -> None:
        self.name = name
        self.kinds: tuple[type[Answer], ...] = get_args(answers) or (answers,)
        if frees:
            self.kinds += (OtherObject,)
        if keeps:
            self.kinds += (Troubled,)
        self._readers = {kind.word.encode(): _reader(kind) for kind in self.kinds}
        self._instead = {}
        if repeated:
            instead, done = repeated
            self._instead[instead.word.encode()] = _reader(done)

    def read(self, raw: Any, is_repeated: bool = False) -> A:
        """Return what the server has answered."""
        name = raw[0]
        instead = self._instead.get(name) if is_repeated else None
        answer: A = (instead or self._readers[name])(raw)
        return answer


class Step(Generic[A]):
    """One call of a script.  It may be sent beside other commands, by whoever sends those."""

    def __init__(
        self, transition: Transition[A], keys: Sequence[str], args: Sequence[Argument]
    ) -> None:
        self.transition = transition
        self.code = script(transition.name)
        # As `encoded` does; each task passes here some fifty times.
        values = [
            value.encode("utf-8", _UNENCODABLE) if isinstance(value, str) else value
            for value in (*keys, *args)
        ]
        #: The arguments of EVALSHA.
        self.call: tuple[Any, ...] = (self.code.sha, len(keys), *values)
        #: None until the reply has come, and if that was an error.
        self.answer: A | None = None

    @property
    def keys(self) -> list[str]:
        """The keys, as text."""
        return [key.decode("utf-8", "replace") for key in self.call[2 : 2 + self.call[1]]]

    def hear(self, raw: Any) -> None:
        """Take the server's reply, which may be an error."""
        if not isinstance(raw, Exception):
            self.answer = self.transition.read(raw)


class Together(Step[A]):
    """A step and another right behind it, as one: nothing of another's comes in between.

    Its answer is that of the first; the second hears its own.
    """

    def __init__(self, first: Step[A], second: Step[Any]) -> None:
        self.transition = _Pair(first.transition, second)
        self.code = together(first.code, second.code)
        _, n_keys, *own = first.call
        _, n_more, *more = second.call
        keys, args = (*own[:n_keys], *more[:n_more]), (*own[n_keys:], *more[n_more:])
        #: The arguments of EVALSHA.
        self.call = (self.code.sha, len(keys), *keys, *args, n_keys, len(own) - n_keys)
        self.answer = None


class _Pair(Transition[A]):
    """Reads the replies of two scripts; its answer is that of the first."""

    def __init__(self, first: Transition[A], second: Step[Any]) -> None:
        self._first = first
        self._second = second
        self.name = first.name

    def read(self, raw: Any, is_repeated: bool = False) -> A:
        """Return what the first has answered, and let the second step hear its own answer."""
        first, second = raw
        self._second.answer = self._second.transition.read(second, is_repeated)
        return self._first.read((first,) if isinstance(first, bytes) else first, is_repeated)


def encoded(text: str) -> bytes:
    """Return *text* as it is sent to the server.

    `os.fsdecode` and JSON can make texts with lone surrogates, which UTF-8 cannot encode.  They are
    escaped, so that such a task is not lost.
    """
    return text.encode("utf-8", _UNENCODABLE)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _number(value: Any) -> int | None:
    return None if value == b"" else int(value)


#: How the server's value becomes one of a field of this type.
_READ: dict[str, Callable[[Any], Any]] = {
    "int": int,
    "int | None": _number,
    "str": _text,
    "bool": bool,
}


def _reader(kind: type[Answer]) -> Callable[[Sequence[Any]], Any]:
    """Return a function that makes an answer of *kind* from a reply of the server."""
    if kind in (Batch, Ripe):
        return partial(_batch, kind)
    if issubclass(kind, Beat):
        return partial(_beat, kind)
    readers = [_READ[str(one.type)] for one in fields(kind)]
    if not readers:
        always = kind()
        return lambda raw: always
    return lambda raw: kind(*[read(value) for read, value in zip(readers, raw[1:], strict=True)])


def _batch(kind: Callable[..., Any], raw: Sequence[Any]) -> Any:
    _, ms, *values = raw
    texts = [_text(value) for value in values]
    pairs = zip(texts[::2], texts[1::2], strict=True)
    return kind(int(ms), tuple(Due(*pair) for pair in pairs))


def _beat(kind: type[Beat], raw: Sequence[Any]) -> Beat:
    _, version, now_ms, n_stops, *values = raw
    texts = [_text(value) for value in values]
    stops, taken = [], []
    for n, (task_id, text) in enumerate(zip(texts[::2], texts[1::2], strict=True)):
        attempt, token = text.split(" ", 1)
        if n < n_stops:
            how, token = token.split(" ", 1)
            stops.append((task_id, int(attempt), token, how))
        else:
            taken.append((task_id, int(attempt), token))
    return kind(int(version), int(now_ms), tuple(stops), tuple(taken))

"""A script as Python has it: what it is called with becomes a step, and its reply an answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Generic, TypeVar

from celery_reliable.ledger import answers
from celery_reliable.ledger.answers import Answer
from celery_reliable.ledger.scripts import Named, Script, header, script, together

__all__ = ["Argument", "Step", "Transition", "as_one", "encoded", "transition"]

A = TypeVar("A", bound=Answer)
Argument = str | int | float | bytes

#: What becomes of what UTF-8 cannot encode.
_UNENCODABLE = "backslashreplace"


class Transition(Generic[A]):
    """One script, by what its header declares."""

    def __init__(self, name: str) -> None:
        self.name = name
        about = header(name)
        self._readers = {word.encode(): _reader(word, of) for word, of in about.replies.items()}
        instead, done = about.repeated or ("", "")
        self._instead = {instead.encode(): self._readers.get(done.encode())}
        found: dict[str, Any] = {"Step": _step, "script": self}
        exec(about.function, found)
        #: Makes a call, as `Header.function` says.
        self.step: Callable[..., Step[A]] = found["step"]

    def read(self, raw: Any, is_repeated: bool = False) -> A:
        """Return what the server has answered."""
        name = raw[0]
        instead = self._instead.get(name) if is_repeated else None
        answer: A = (instead or self._readers[name])(raw)
        return answer


@cache
def transition(name: str) -> Transition[Any]:
    """Return that of a script; raises FileNotFoundError for a name without one."""
    return Transition(name)


class Step(Generic[A]):
    """One call of a script.  It may be sent beside other commands, by whoever sends those."""

    def __init__(self, transition: Transition[A], code: Script, call: tuple[Any, ...]) -> None:
        self.transition = transition
        self.code = code
        #: The arguments of EVALSHA.
        self.call = call
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


def _step(transition: Transition[A], keys: Sequence[str], args: Sequence[Argument]) -> Step[A]:
    code = script(transition.name)
    # As `encoded` does; each task passes here some fifty times.
    values = [
        value.encode("utf-8", _UNENCODABLE) if isinstance(value, str) else value
        for value in (*keys, *args)
    ]
    return Step(transition, code, (code.sha, len(keys), *values))


def as_one(first: Step[A], second: Step[Any]) -> Step[A]:
    """Return a step and another right behind it as one: nothing of another's comes in between.

    Its answer is that of the first; the second hears its own.
    """
    code = together(first.code, second.code)
    _, n_keys, *own = first.call
    _, n_more, *more = second.call
    keys, args = (*own[:n_keys], *more[:n_more]), (*own[n_keys:], *more[n_more:])
    call = (code.sha, len(keys), *keys, *args, n_keys, len(own) - n_keys)
    return Step(_Pair(first.transition, second), code, call)


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


#: How the server's value becomes one of a field of this kind.
_READ: dict[str, Callable[[Any], Any]] = {"int": int, "text": _text, "flag": bool}


def _reader(word: str, of: Sequence[Named]) -> Callable[[Sequence[Any]], Any]:
    """Return a function that makes an answer of this word from a reply of the server."""
    kind = answers.made(word)
    if not of:
        always = kind()
        return lambda raw: always
    *first, last = of
    readers = [_optional(one) for one in (first if last.mark == "..." else of)]
    n_read = len(readers)

    def read(raw: Sequence[Any]) -> Answer:
        values = [read(value) for read, value in zip(readers, raw[1 : n_read + 1], strict=True)]
        if last.mark == "...":
            values.append(tuple(map(_text, raw[n_read + 1 :])))
        return kind(*values)

    return read


def _optional(one: Named) -> Callable[[Any], Any]:
    read = _READ[one.kind]
    return (lambda value: None if value == b"" else read(value)) if one.mark == "?" else read

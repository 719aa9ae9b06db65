"""The names of other packages that the hooks need though they are private, and a check of them.

Each function (or class) of this folder says with `relies_on` which names it needs, and in its
docstring why.  `missing` looks for them in what is installed.
"""

from __future__ import annotations

import dis
import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from types import CodeType
from typing import Any, Protocol, TypeVar

from celery_reliable.model import Finding

__all__ = [
    "HOOKS",
    "Behaviour",
    "Either",
    "Hook",
    "Kept",
    "Name",
    "Part",
    "Relied",
    "Used",
    "has_all",
    "missing",
    "relies_on",
]

T = TypeVar("T", bound=Callable[..., Any])

#: The packages that have these names.
_PACKAGES = ("celery", "kombu", "billiard", "redis")


class Part(str, Enum):
    """Who needs a name. A process that does not use a part is not refused for its names."""

    #: Processes that publish or define tasks; workers too.
    PRODUCER = "producer"
    #: The main process of each worker and what it runs.
    WORKER = "worker"
    #: Workers whose pool has processes.
    PREFORK = "prefork"
    #: Workers whose pool has greenlets of gevent's.
    GEVENT = "gevent"
    #: Workers whose pool has greenlets of eventlet's.
    EVENTLET = "eventlet"
    #: Workers, and sweepers, whose queues are lists of a Redis.
    REDIS_BROKER = "redis_broker"
    #: Processes that publish to lists on the Redis of the ledger.
    REDIS_PRODUCER = "redis_producer"
    #: Workers that keep results in a Redis.
    REDIS_RESULTS = "redis_results"


class Relied(Protocol):
    """Something that is relied on."""

    def fault(self) -> str:
        """Return what is wrong with it, in what is installed; empty when nothing is."""


@dataclass(frozen=True)
class Name:
    """An attribute of a module or a class, ``module:name`` or ``module:Class.name``."""

    path: str
    #: The parameters that it is given, or is called with where it is replaced; without ``self``.
    takes: tuple[str, ...] = ()
    #: For a name that we replace: the code that must use it, or the replacement has no effect.
    used_by: str = ""

    def fault(self) -> str:
        """Return what is wrong with it: it is not there, is another, or nobody asks for it."""
        try:
            found = _raw(self.path)
        except (ImportError, AttributeError):
            return f"there is no {_dotted(self.path)}"
        if self.takes and not _takes(found, self.takes):
            return f"there is no {_dotted(self.path)} that takes ({', '.join(self.takes)})"
        name = self.path.replace(":", ".").rpartition(".")[2]
        if self.used_by and not _is_used(name, self.used_by):
            return f"there is no use of {name} in {_dotted(self.used_by)}"
        return ""


@dataclass(frozen=True)
class Kept:
    """An attribute that instances of a class have: some method of the class sets it."""

    path: str

    def fault(self) -> str:
        """Return what is wrong with it: no method sets it, and it is no property either."""
        owner, _, name = self.path.rpartition(".")
        try:
            cls = _raw(owner)
        except (ImportError, AttributeError):
            return f"there is no {_dotted(owner)}"
        members = (member for one in inspect.getmro(cls) for member in vars(one).values())
        is_set = any(name in _set_in(_code_of(member)) for member in members)
        if is_set or isinstance(inspect.getattr_static(cls, name, None), property):
            return ""
        return f"there is no {_dotted(self.path)}"


@dataclass(frozen=True)
class Used:
    """A name that some code of somebody else's uses, though no class has it."""

    by: str
    name: str

    def fault(self) -> str:
        """Return what is wrong with it: it is not used there."""
        is_used = _is_used(self.name, self.by)
        return "" if is_used else f"there is no use of {self.name} in {_dotted(self.by)}"


@dataclass(frozen=True)
class Either:
    """Names of which one must exist. Which one depends on the release."""

    names: tuple[Name, ...]

    def fault(self) -> str:
        """Return what is wrong with it: that none of them is there."""
        faults = [one.fault() for one in self.names]
        return "" if "" in faults else ", and ".join(faults)


@dataclass(frozen=True)
class Behaviour:
    """Something that other packages do and that is found out by trying it."""

    what: str
    holds: Callable[[], bool]

    def fault(self) -> str:
        """Return what is wrong: it does otherwise, or trying it has failed."""
        try:
            return "" if self.holds() else f"it is not so that {self.what}"
        except Exception as exc:
            return f"it cannot be told whether {self.what} ({exc!r})"


@dataclass(frozen=True)
class Hook:
    """One function or class of this folder, and what it relies on."""

    function: Any
    relied: tuple[Relied, ...]
    part: Part
    #: Without it a promise breaks.
    is_promise: bool

    @property
    def name(self) -> str:
        """What it is called."""
        return f"{self.function.__module__}.{self.function.__qualname__}"

    @cached_property
    def without(self) -> str:
        """What is not protected without it, as its docstring says."""
        text = " ".join((inspect.getdoc(self.function) or "").split())
        sentence = text.partition("Without it ")[2].partition(". ")[0].rstrip(".")
        # Docstrings are gone under `python -OO`.
        return sentence or f"nobody knows what {self.name} does"


HOOKS: list[Hook] = []


def relies_on(*relied: Relied, part: Part, is_promise: bool = True) -> Callable[[T], T]:
    """Say what a function or a class of this folder relies on.  *is_promise*: without it a promise
    of the package breaks, so that *part* refuses to start; otherwise it is warned of.
    """

    def note(function: T) -> T:
        HOOKS.append(Hook(function, relied, part, is_promise))
        return function

    return note


@cache
def has_all(function: Any) -> bool:
    """Whether all is installed that a function or a class of this folder relies on."""
    relied = (one for hook in HOOKS if hook.function is function for one in hook.relied)
    return not any(one.fault() for one in relied)


def missing(parts: Iterable[Part]) -> Iterator[Finding]:
    """Yield what *parts* rely on and what is installed does not have."""
    wanted = set(parts)
    for hook in HOOKS:
        if hook.part not in wanted:
            continue
        for one in hook.relied:
            fault = one.fault()
            if fault:
                yield Finding(
                    "celery_reliable.name_missing",
                    "error" if hook.is_promise else "warning",
                    f"{fault[0].upper()}{fault[1:]} ({installed()}). Without it {hook.without}.",
                    "Install releases that celery-reliable was checked on, or a celery-reliable "
                    "that was checked on these.",
                )


def installed() -> str:
    """Return which releases are installed of those whose names are relied on."""
    found = []
    for package in _PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            found.append(f"{package}, which is not installed as a package")
    return ", ".join(found)


def _dotted(path: str) -> str:
    return path.replace(":", ".")


def _raw(path: str) -> Any:
    """Return what *path* names, as it stands in its class (a property, say)."""
    module, _, qualified = path.partition(":")
    found: Any = importlib.import_module(module)
    for name in qualified.split(".") if qualified else ():
        found = inspect.getattr_static(found, name)
    return found


def _takes(function: Any, names: tuple[str, ...]) -> bool:
    try:
        parameters = list(inspect.signature(_function_of(function)).parameters.values())
    except (TypeError, ValueError):
        return False
    if any(one.kind is one.VAR_POSITIONAL for one in parameters):
        return True
    own = [one.name for one in parameters if one.name not in ("self", "cls")]
    return tuple(own[: len(names)]) == names


def _function_of(member: Any) -> Any:
    """Return the function behind a property, a class method and the like."""
    for name in ("fget", "__func__", "func", "__wrapped__"):
        inner = getattr(member, name, None)
        if callable(inner):
            return inner
    return member


def _code_of(member: Any) -> CodeType | None:
    code = getattr(_function_of(member), "__code__", None)
    return code if isinstance(code, CodeType) else None


def _is_used(name: str, path: str) -> bool:
    """Whether the code of a function uses a name. If a tool that measures or traces has replaced
    the function, the answer is True: its code does not tell what it calls.
    """
    try:
        function = _function_of(_raw(path))
    except (ImportError, AttributeError):
        return False
    theirs = str(getattr(function, "__globals__", {}).get("__name__", "")).partition(".")[0]
    return theirs != _dotted(path).partition(".")[0] or name in _names_of(path)


def _names_of(path: str) -> frozenset[str]:
    """Return the attributes, globals and texts that the code of a function names; none of one that
    is not there.
    """
    try:
        code = _code_of(_raw(path))
    except (ImportError, AttributeError):
        return frozenset()
    return frozenset(
        name for one in _each(code) for name in _named_in(one) if isinstance(name, str)
    )


def _named_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for one in code.co_consts:
        # The names of arguments are in a tuple.
        yield from one if isinstance(one, tuple) else (one,) if isinstance(one, str) else ()


def _set_in(code: CodeType | None) -> frozenset[str]:
    """Return the attributes that some code sets."""
    steps = (step for one in _each(code) for step in dis.get_instructions(one))
    return frozenset(step.argval for step in steps if step.opname == "STORE_ATTR")


def _each(code: CodeType | None) -> Iterator[CodeType]:
    """Yield code, and that of the functions that are made in it."""
    if code is not None:
        yield code
        for one in code.co_consts:
            if isinstance(one, CodeType):
                yield from _each(one)

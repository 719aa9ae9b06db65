"""The names of other packages that the hooks need though they are private, and a check of them.

Each function (or class) of this folder says with `relies_on` which names it needs, and in its
docstring why.  `missing` looks for them in what is installed.

A tool that measures or traces may have replaced any function of those packages.  So what a function
names or sets is read from the code that its release has installed, and never from the function that
stands there now.
"""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache, cached_property
from types import CodeType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

if TYPE_CHECKING:
    from celery_reliable.findings import Finding

__all__ = [
    "HOOKS",
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
    #: Workers, and sweepers, whose queues are lists of a Redis.
    REDIS_BROKER = "redis_broker"
    #: Processes that publish to lists on the Redis of the ledger.
    REDIS_PRODUCER = "redis_producer"
    #: Workers that keep results in a Redis.
    REDIS_RESULTS = "redis_results"


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
            _raw(self.path)
        except (ImportError, AttributeError):
            return f"there is no {_dotted(self.path)}"
        if self.takes and not _takes(self.path, self.takes):
            return f"there is no {_dotted(self.path)} that takes ({', '.join(self.takes)})"
        name = self.path.replace(":", ".").rpartition(".")[2]
        if self.used_by and not _is_used(name, self.used_by):
            return f"there is no use of {name} in {_dotted(self.used_by)}"
        return ""


@dataclass(frozen=True)
class Kept:
    """An attribute that instances of a class have: the class, or one that it derives from, names it
    in its code.
    """

    path: str

    def fault(self) -> str:
        """Return what is wrong with it: it is named nowhere."""
        owner, _, name = self.path.rpartition(".")
        try:
            places = _places_of(owner)
        except (ImportError, AttributeError):
            return f"there is no {_dotted(owner)}"
        codes = [code for place in places for code in _within(*place)]
        # There is none of a class that was compiled to something else.
        is_known = not codes or any(name in _named_in(code) for code in codes)
        return "" if is_known else f"there is no {_dotted(self.path)}"


@dataclass(frozen=True)
class Used:
    """A name that some code of somebody else's uses, though no class has it."""

    by: str
    name: str

    def fault(self) -> str:
        """Return what is wrong with it: it is not used there."""
        is_used = _is_used(self.name, self.by)
        return "" if is_used else f"there is no use of {self.name} in {_dotted(self.by)}"


#: Something that is relied on.
Relied: TypeAlias = Name | Kept | Used


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


def missing(parts: Collection[Part]) -> Iterator[Finding]:
    """Yield what *parts* rely on and what is installed does not have."""
    for hook in (one for one in HOOKS if one.part in parts):
        for fault in filter(None, (one.fault() for one in hook.relied)):
            from celery_reliable.findings import NAME_MISSING

            yield NAME_MISSING.found(
                severity="error" if hook.is_promise else "warning",
                fault=f"{fault[0].upper()}{fault[1:]} ({installed()})",
                without=hook.without,
            )
    _code_of_module.cache_clear()


def installed() -> str:
    """Return which releases are installed of those whose names are relied on."""
    found = ((package, importlib.import_module(package)) for package in _PACKAGES)
    return ", ".join(f"{name} {package.__version__}" for name, package in found)


def _dotted(path: str) -> str:
    return path.replace(":", ".")


def _raw(path: str) -> Any:
    """Return what *path* names, as it stands in its class (a property, say)."""
    module, _, qualified = path.partition(":")
    found: Any = importlib.import_module(module)
    for name in qualified.split(".") if qualified else ():
        found = inspect.getattr_static(found, name)
    return found


def _takes(path: str, names: tuple[str, ...]) -> bool:
    """Whether a function takes these arguments first; True of code that cannot be read."""
    codes = _code_at(path)
    if codes is None or any(code.co_flags & inspect.CO_VARARGS for code in codes):
        return True
    taken = (code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] for code in codes)
    own = ([name for name in one if name not in ("self", "cls")] for one in taken)
    return any(tuple(one[: len(names)]) == names for one in own)


def _is_used(name: str, path: str) -> bool:
    """Whether the code of a function uses a name; True of code that cannot be read."""
    codes = _code_at(path)
    return codes is None or any(name in _named_in(code) for code in codes)


@cache
def _code_of_module(module: str) -> CodeType | None:
    """Return the code of a module as it is installed; None if it was compiled to something else."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    get_code = getattr(spec and spec.loader, "get_code", None)
    code = get_code(module) if get_code is not None else None
    return code if isinstance(code, CodeType) else None


def _code_at(path: str) -> list[CodeType] | None:
    """Return the code of a function as it is installed, or of a property's functions; None if that
    cannot be read.
    """
    module, _, qualified = path.partition(":")
    owner, _, name = qualified.rpartition(".")
    try:
        places = _places_of(f"{module}:{owner}")
    except (ImportError, AttributeError):
        return []
    for where, names in places:
        found = _within(where, [*names, name])
        if found:
            return found
    return None if _code_of_module(places[0][0]) is None else []


def _places_of(path: str) -> list[tuple[str, list[str]]]:
    """Return where the code of a module is, or of a class and of those that it derives from."""
    module, _, qualified = path.partition(":")
    if not qualified:
        return [(module, [])]
    # The metaclass of Celery's steps changes the names of their classes.
    others = [(one.__module__, one.__qualname__.split(".")) for one in inspect.getmro(_raw(path))]
    return [(module, qualified.split(".")), *others]


def _within(module: str, names: Sequence[str]) -> list[CodeType]:
    """Return the code of what has this qualified name in a module."""
    code = _code_of_module(module)
    found = [] if code is None else [code]
    for name in names:
        inner = (one for outer in found for one in outer.co_consts)
        found = [one for one in inner if isinstance(one, CodeType) and one.co_name == name]
    return found


def _named_in(code: CodeType) -> Iterator[str]:
    """Yield the attributes, globals and texts that some code names, and functions within it."""
    yield from code.co_names
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _named_in(one)
        # The names of arguments are in a tuple.
        for text in one if isinstance(one, tuple) else (one,):
            if isinstance(text, str):
                yield text

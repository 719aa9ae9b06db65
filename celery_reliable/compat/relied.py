"""The names of other packages that the hooks need though they are private, and a check of them.

Each function (or class) of this folder says with `relies_on` which names it needs, and in its
docstring why.  `missing` looks for them in what is installed.

A tool that measures or traces may have replaced any function of those packages.  So what a function
names is looked for in the text of its module as it is installed.  That the name stands there is all
that is known.
"""

from __future__ import annotations

import importlib.util
import inspect
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from celery_reliable.findings import Finding

__all__ = [
    "HOOKS",
    "Hook",
    "Name",
    "Part",
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
            found = _raw(self.path)
        except (ImportError, AttributeError):
            return f"there is no {_dotted(self.path)}"
        if self.takes and not _takes(found, self.takes):
            return f"there is no {_dotted(self.path)} that takes ({', '.join(self.takes)})"
        name = self.path.replace(":", ".").rpartition(".")[2]
        return Used(self.used_by, name).fault() if self.used_by else ""


@dataclass(frozen=True)
class Used:
    """A name that the code of a function or a class uses: one of somebody else's, or of an
    attribute that only the instances of that class have.
    """

    by: str
    name: str

    def fault(self) -> str:
        """Return what is wrong with it: nothing of the kind is there, or does not use it."""
        try:
            text = "\n".join(filter(None, map(_source_of, _modules_of(self.by))))
        except (ImportError, AttributeError):
            return f"there is no {_dotted(self.by)}"
        # Of a release without its source nobody knows more.
        is_used = not text or re.search(rf"(?<!\w){re.escape(self.name)}\b", text)
        return "" if is_used else f"there is no use of {self.name} in {_dotted(self.by)}"


@dataclass(frozen=True)
class Hook:
    """One function or class of this folder, and what it relies on."""

    function: Any
    relied: tuple[Name | Used, ...]
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


def relies_on(*relied: Name | Used, part: Part, is_promise: bool = True) -> Callable[[T], T]:
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
    _source_of.cache_clear()


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


def _takes(found: Any, names: tuple[str, ...]) -> bool:
    """Whether a function takes these arguments first; True of one that does not tell."""
    try:
        parameters = inspect.signature(getattr(found, "__func__", found)).parameters.values()
    except (TypeError, ValueError):
        return True
    if any(one.kind is one.VAR_POSITIONAL for one in parameters):
        return True
    own = [one.name for one in parameters if one.name not in ("self", "cls")]
    return tuple(own[: len(names)]) == names


def _modules_of(path: str) -> set[str]:
    """Return the module in which a function or a class stands, with those of the classes that this,
    or that of the function, derives from.
    """
    _raw(path)
    module, _, qualified = path.partition(":")
    owner = _raw(f"{module}:{qualified.partition('.')[0]}")
    classes = inspect.getmro(owner) if inspect.isclass(owner) else ()
    return {module, *(one.__module__ for one in classes)}


@cache
def _source_of(module: str) -> str | None:
    """Return the text of a module as it is installed; None if it has none."""
    spec = importlib.util.find_spec(module)
    get_source = getattr(spec and spec.loader, "get_source", None)
    return get_source(module) if get_source is not None else None

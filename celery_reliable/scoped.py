"""Context variables that have a value for as long as a block lasts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

__all__ = ["scoped"]

T = TypeVar("T")


@contextmanager
def scoped(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Let a variable have this value inside, in this thread or greenlet."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)

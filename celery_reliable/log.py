"""The package's logger.  A line reads ``name key=value …``.  A filter keeps each one in one line,
and without the passwords of URLs: pass values as arguments of the line, never within its text.

``exc_info=error`` adds a traceback, unless a server or a connection caused the error: then its
text is enough.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from enum import Enum

from celery_reliable.exceptions import ReliableError, said

__all__ = ["as_shown", "logger"]

logger = logging.getLogger("celery_reliable")  # noqa: TID251

_LONGEST_ERROR = 500
#: Packages whose errors are about a server or a connection, not about a fault in this process.
_OUTSIDE = frozenset({"amqp", "kombu", "redis"})
#: Up to the last "@": a password that is not quoted may contain one.
_PASSWORD = re.compile(r"(?<=://)[^\s'\"]*(?=@)|(?i:(?<=password=))[^&\s'\"]+")


def as_shown(value: object) -> str:
    """Return a value as a line of the log has it: printable, and without passwords of URLs."""
    if isinstance(value, BaseException):
        text = _error_as_shown(value)
    elif isinstance(value, float):
        text = f"{round(value, 3):g}"
    else:
        text = str(value.value if isinstance(value, Enum) else value)
    if not text.isprintable():
        # The name of a task or a queue must not add lines to the log.
        text = text.encode("unicode_escape").decode()
    return _PASSWORD.sub("**", text)


def _error_as_shown(error: BaseException) -> str:
    """Return the text of an error of the package, and the type and text of any other."""
    if isinstance(error, ReliableError):
        text = said(error)
    else:
        try:
            text = repr(error)
        except Exception:
            text = f"{type(error).__name__}({said(error)!r})"
    # Before the text is cut: in half a URL one cannot see where the password ends.
    return _PASSWORD.sub("**", " ".join(text.split()))[:_LONGEST_ERROR]


def _made_safe(record: logging.LogRecord) -> bool:
    if isinstance(record.args, Mapping):
        record.args = {name: as_shown(one) for name, one in record.args.items()}
    elif record.args:
        record.args = tuple(as_shown(one) for one in record.args)
    error = record.exc_info[1] if record.exc_info else None
    packages = {cls.__module__.partition(".")[0] for cls in type(error).__mro__}
    if isinstance(error, (OSError, ReliableError)) or packages & _OUTSIDE:
        record.exc_info = None
    return True


logger.addFilter(_made_safe)

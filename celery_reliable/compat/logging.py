"""Python's logging, whose locks belong to one native thread where gevent has replaced them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from celery_reliable.compat.relied import Name, Part, Used, relies_on

__all__ = ["lock_by"]


@relies_on(
    Name("logging:_lock"),
    Name("logging:_handlerList", used_by="logging:_addHandlerRef"),
    Name("logging:Handler.createLock", used_by="logging:Handler.__init__"),
    Used("logging:Handler", "lock"),
    part=Part.GEVENT,
)
def lock_by(make: Callable[[], Any]) -> None:
    """Let all present and future handlers of logging use locks that *make* returns.

    Sets ``logging._lock`` and the handlers' ``lock``, and replaces ``Handler.createLock``, for the
    whole process: logging makes its locks itself, from what gevent put in the place of
    Python's.  Checked on Python 3.10 to 3.13.  Without it a native thread that logs while a
    greenlet does raises there, or hangs.
    """
    module: Any = logging
    create = module.Handler.createLock

    def create_other(handler: Any) -> None:
        create(handler)
        handler.lock = make()

    module._lock = make()
    module.Handler.createLock = create_other
    for reference in list(module._handlerList):
        handler = reference()
        if handler is not None and handler.lock is not None:
            handler.lock = make()

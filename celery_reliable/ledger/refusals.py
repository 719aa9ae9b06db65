"""Which of redis-py's errors end a call, and what the package raises instead."""

from __future__ import annotations

import re
from dataclasses import dataclass

from redis import exceptions as errors

from celery_reliable.exceptions import (
    LedgerForbidden,
    LedgerRefused,
    LedgerUnavailable,
)
from celery_reliable.redis_io import is_of_cluster, is_transient

__all__ = ["Asked", "is_forbidden", "said"]

#: How a user's missing right reads from the middle of a script, from Redis 6.2 to Valkey 9.
_FORBIDDEN_REPLY = re.compile(r"NOPERM|ACL failure in script|user executing the script can't")
_NOTHING = "Nothing was sent, or what was sent was refused."
_UNKNOWN = "Whether the step was executed is unknown."


@dataclass(frozen=True)
class Asked:
    """What was asked of which server, for the texts of errors."""

    operation: str
    #: The server's address without a password.
    shown: str
    keys: tuple[str, ...] = ()

    def refusal(
        self, exc: BaseException, *, waits_for_memory: bool, waits_for_right: bool
    ) -> LedgerRefused | None:
        """Return what to raise for an error that no repetition mends; None: repeat the call.

        *waits_for_memory*: also a server that is full, or no master, is waited for.
        *waits_for_right*: also an operator who adds a right.
        """
        if isinstance(exc, errors.DataError):
            # redis-py raised it: the arguments cannot be sent.
            return LedgerRefused(
                f"{self.operation!r} was not sent to the ledger's Redis at {self.shown}: {exc} "
                "Nothing was changed.",
                operation=self.operation,
            )
        if is_forbidden(exc):
            return None if waits_for_right else self._forbidden(exc)
        if is_of_cluster(exc):
            return LedgerRefused(
                f"The ledger's Redis at {self.shown} is a node of a Redis Cluster, which "
                f"is not supported ({self.operation}: {exc}). Nothing was changed. Let "
                "REDIS_URL name a Redis that is none.",
                operation=self.operation,
                reply=str(exc),
            )
        if is_transient(exc) or waits_for_memory:
            return None
        return LedgerRefused(
            f"The ledger's Redis at {self.shown} refused {self.operation!r}: {exc}. Nothing "
            "was changed. It must be a writable master with maxmemory-policy "
            "noeviction, with enough memory.",
            operation=self.operation,
            reply=str(exc),
        )

    def _forbidden(self, exc: BaseException) -> LedgerForbidden:
        keys = f" with the keys {', '.join(self.keys)}" if self.keys else ""
        return LedgerForbidden(
            f"The ledger's Redis at {self.shown} does not let its user do "
            f"{self.operation!r}{keys}: {exc}. `celery -A ... reliable "
            "doctor` prints the rule that is needed.",
            operation=self.operation,
            reply=str(exc),
        )

    def no_answer(self, exc: BaseException, *, is_undone: bool) -> LedgerUnavailable:
        """Return what to raise when the patience has run out."""
        return LedgerUnavailable(
            f"The ledger's Redis at {self.shown} did not answer ({self.operation}): "
            f"{said(exc)}. {_NOTHING if is_undone else _UNKNOWN} Check that the "
            "server is up, that it is the master, and that REDIS_URL names it.",
            operation=self.operation,
            is_undone=is_undone,
        )


def is_forbidden(exc: BaseException) -> bool:
    """Whether an error says that the user lacks a right, or has a wrong password."""
    # redis-py counts a wrong password among the connection errors, but it does not pass.
    if isinstance(exc, (errors.NoPermissionError, errors.AuthenticationError)):
        return True
    return isinstance(exc, errors.ResponseError) and bool(_FORBIDDEN_REPLY.search(str(exc)))


def said(exc: BaseException) -> str:
    """Return an error's text without the list of Sentinels that redis-py appends."""
    return str(exc).partition(" : ")[0].rstrip(".")

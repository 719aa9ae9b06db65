"""Whether a worker's death shows at once, by the end of its connection to the ledger's server.

Not every server says who is connected to it.  And where something stands between that keeps a pool
of connections, the server knows that one's: such a connection outlives its worker, or is gone while
the worker lives.
"""

from __future__ import annotations

import time

from celery_reliable.app import Reliable
from celery_reliable.exceptions import LedgerUnavailable
from celery_reliable.ledger import Ledger

__all__ = ["why_no_witness"]

#: How long a connection that was closed may be listed before it counts as somebody else's.
_GONE_SECONDS = 1.0
_LOOK_SECONDS = 0.02


def why_no_witness(reliable: Reliable) -> str:
    """Return why a lost connection of this process would prove nothing, and the way out; empty
    when it proves a death.

    Tried with a connection of its own, which it opens and closes.  That a server which does not
    answer now has a witness is taken for granted.
    """
    if not reliable.config.witness_seconds:
        return "WITNESS_SECONDS is 0."
    watcher = reliable.own_ledger(reply_timeout_seconds=5.0, patience_seconds=3.0)
    tried = reliable.own_ledger(reply_timeout_seconds=5.0, patience_seconds=3.0, single=True)
    try:
        return _try(watcher, tried)
    except LedgerUnavailable:
        return ""
    finally:
        tried.close()
        watcher.close()


def _try(watcher: Ledger, tried: Ledger) -> str:
    ids = [str(tried.workers.client_id(tried.workers.connection, None, 0)[0])]
    listed = watcher.workers.connected(ids)
    if ids == ["0"] or listed is None:
        return (
            "The ledger's Redis does not let its user run CLIENT ID and CLIENT LIST. Allow both "
            "(ACL SETUSER ... +client)."
        )
    tried.close()
    deadline = time.monotonic() + _GONE_SECONDS
    while listed and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
        listed = watcher.workers.connected(ids)
        if listed == set():
            return ""
    return (
        "What is connected to the ledger's Redis is not this worker but something between, which "
        "keeps connections of its own. Let REDIS_URL name the server itself."
    )

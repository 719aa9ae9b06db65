"""Whether a worker's death shows at once, by the end of its connection to the ledger's server.

A pass is the witness: it asks the server who is connected.  Not every server says so.  And behind a
proxy with a pool of connections the server sees those of the proxy, which outlive the worker or end
while it lives.
"""

from __future__ import annotations

import time

from celery_reliable.app import Reliable
from celery_reliable.exceptions import LedgerUnavailable
from celery_reliable.ledger import Ledger

__all__ = ["why_no_witness"]

#: A connection that is listed for longer after it was closed is a proxy's.
_GONE_SECONDS = 1.0
_LOOK_SECONDS = 0.02


def why_no_witness(reliable: Reliable) -> str:
    """Return why a lost connection of this process would prove nothing, and what to change; empty
    when it proves a death.

    Tries that with a connection which it opens and closes.  Of a server that does not answer now it
    assumes the best.
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

"""Messages: read, stored and converted.  Nothing here talks to a server."""

from __future__ import annotations

from celery_reliable.message.convert import (
    as_published,
    as_sent,
    context_of,
    from_request,
    prepared,
    text_as_sent,
)
from celery_reliable.message.envelope import (
    HEADER,
    HEIR,
    Envelope,
    Stamp,
    address_of,
    new_epoch,
    seconds_until,
)
from celery_reliable.message.named import NAMED, NamedWorkers, is_named
from celery_reliable.message.payload import (
    RETURNS,
    check_delivered,
    check_limits,
    headers_as_written,
    id_as_text,
    looks_used_once,
    payload_of,
    returns_of,
    task_id_of,
)

__all__ = [
    "HEADER",
    "HEIR",
    "NAMED",
    "RETURNS",
    "Envelope",
    "NamedWorkers",
    "Stamp",
    "address_of",
    "as_published",
    "as_sent",
    "check_delivered",
    "check_limits",
    "context_of",
    "from_request",
    "headers_as_written",
    "id_as_text",
    "is_named",
    "looks_used_once",
    "new_epoch",
    "payload_of",
    "prepared",
    "returns_of",
    "seconds_until",
    "task_id_of",
    "text_as_sent",
]

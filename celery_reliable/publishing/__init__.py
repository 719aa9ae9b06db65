"""Publishing: recorded first, then sent."""

from __future__ import annotations

from celery_reliable.publishing.amqp import install
from celery_reliable.publishing.carriers import CARRIERS, TWINS, add_twins
from celery_reliable.publishing.errors import NotPublished, PublishUnknown
from celery_reliable.publishing.placement import at_home, placed
from celery_reliable.publishing.publication import (
    Call,
    calling,
    instead_of,
    is_member,
)
from celery_reliable.publishing.resending import (
    list_of,
    resend,
    send_stored,
)
from celery_reliable.publishing.runs import run_on

__all__ = [
    "CARRIERS",
    "TWINS",
    "Call",
    "NotPublished",
    "PublishUnknown",
    "add_twins",
    "at_home",
    "calling",
    "install",
    "instead_of",
    "is_member",
    "list_of",
    "placed",
    "resend",
    "run_on",
    "send_stored",
]

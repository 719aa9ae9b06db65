"""Publishing: recorded first, then sent."""

from __future__ import annotations

from celery_reliable.publishing.amqp import CARRIERS, TWINS, add_twins, install
from celery_reliable.publishing.placement import at_home, placed, run_on
from celery_reliable.publishing.publication import (
    MAY_WAIT,
    Call,
    calling,
    instead_of,
    is_member,
)
from celery_reliable.publishing.sending import (
    NotPublished,
    PublishUnknown,
    list_of,
    resend,
    send_stored,
)

__all__ = [
    "CARRIERS",
    "MAY_WAIT",
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

"""Recovery: what is done for those that cannot speak for themselves any more."""

from __future__ import annotations

from celery_reliable.recovery.broker_view import BrokerView, Step
from celery_reliable.recovery.dead_workers import is_over
from celery_reliable.recovery.losses import Losses
from celery_reliable.recovery.lost_messages import MOST_BYTES
from celery_reliable.recovery.revocations import call_off
from celery_reliable.recovery.sweeper import Sweeper

__all__ = ["MOST_BYTES", "BrokerView", "Losses", "Step", "Sweeper", "call_off", "is_over"]

"""The worker's main process: its lease, its children, its deliveries."""

from __future__ import annotations

from celery_reliable.worker.consumer_step import ConsumerStep
from celery_reliable.worker.request import ReliableRequest
from celery_reliable.worker.worker_step import WorkerStep

__all__ = ["ConsumerStep", "ReliableRequest", "WorkerStep"]

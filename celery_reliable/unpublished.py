"""Where the errors of a publication were: a pickled result may name them."""

from __future__ import annotations

from celery_reliable.publishing import NotPublished, PublishUnknown

__all__ = ["NotPublished", "PublishUnknown"]

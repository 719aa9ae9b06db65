"""What doors need to know of a broker."""

from __future__ import annotations

from celery import Celery
from kombu.exceptions import OperationalError

__all__ = ["broker_errors"]


def broker_errors(app: Celery) -> tuple[type[Exception], ...]:
    """Return the errors by which a broker that is away shows."""
    connection = app.connection_for_read()
    return (OperationalError, *connection.connection_errors, *connection.channel_errors)

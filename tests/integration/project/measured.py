"""The project, in processes in which a tool that measures has put functions of its own before those
of Celery, kombu, billiard and redis-py.
"""

from __future__ import annotations

import functools
from types import FunctionType
from typing import Any

import billiard.pool
import celery
import kombu
import kombu.transport.redis
import redis
from celery.app import amqp, trace
from celery.backends.redis import RedisBackend, ResultConsumer
from celery.concurrency import asynpool, prefork
from celery.worker import consumer, request, worker

#: What is measured: all that these have.
OWNERS: tuple[Any, ...] = (
    celery.Celery,
    celery.Task,
    amqp.AMQP,
    request.Request,
    consumer.Consumer,
    worker.WorkController,
    prefork.TaskPool,
    asynpool.AsynPool,
    billiard.pool.Pool,
    billiard.pool.ApplyResult,
    RedisBackend,
    ResultConsumer,
    kombu.Connection,
    kombu.Consumer,
    kombu.Producer,
    kombu.transport.redis.Channel,
    kombu.transport.redis.QoS,
    redis.Redis,
    redis.Connection,
)


def measured(own: Any) -> Any:
    """Return a function that does what *own* does."""

    @functools.wraps(own)
    def measure(*args: Any, **kwargs: Any) -> Any:
        return own(*args, **kwargs)

    return measure


for owner in OWNERS:
    for name, own in list(vars(owner).items()):
        if isinstance(own, FunctionType):
            setattr(owner, name, measured(own))
trace.build_tracer = measured(trace.build_tracer)

from tests.integration.project.app import app  # noqa: E402 - an app of what is measured

__all__ = ["app"]

"""What a worker checks before it starts, and how it waits for a ledger that is away."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

from celery.utils.nodenames import worker_direct
from kombu.utils.functional import retry_over_time

from celery_reliable.app import Reliable, scheme_of
from celery_reliable.broker import UNACKED_PREFIX, transport_for
from celery_reliable.context import WorkerProcess, current_worker, set_current_worker
from celery_reliable.doctor import ask_hooks, ask_ledger, setup_of
from celery_reliable.exceptions import LedgerUnavailable
from celery_reliable.findings import START, Finding, log_finding, look, raise_for
from celery_reliable.log import logger
from celery_reliable.options import names_workers
from celery_reliable.pool import kind_of

__all__ = [
    "check_start",
    "consume_apart",
    "consume_own_queue",
    "finish_when_embedded",
]


def check_start(w: Any, reliable: Reliable) -> None:
    """Tell of what may be wrong with a worker's settings, its Celery and its servers.

    Raises ConfigurationError for what must be changed before it can start, and LedgerUnavailable
    when the ledger does not answer for as long as Celery would wait for its broker.
    """
    pool = kind_of(w.pool_cls)
    findings = raise_for([*look(START, setup_of(reliable, pool=pool)), *ask_hooks(reliable, pool)])
    findings += raise_for(_of_ledger_when_there(reliable))
    for finding in findings:
        log_finding(finding)


def _of_ledger_when_there(reliable: Reliable) -> list[Finding]:
    """Return what is found out about the ledger as soon as it answers.

    It is asked when, and as often as, Celery would try to connect to its broker: the settings
    `broker_connection_retry_on_startup` and `broker_connection_max_retries` say so.  Raises
    LedgerUnavailable after that.
    """
    conf = reliable.app.conf
    is_patient = conf.broker_connection_retry_on_startup
    if is_patient is None:
        is_patient = conf.broker_connection_retry
    most = conf.broker_connection_max_retries or None

    def ask() -> list[Finding]:
        own = reliable.own_ledger(reply_timeout_seconds=5.0, patience_seconds=3.0)
        with closing(own) as ledger:
            return ask_ledger(reliable, ledger)

    def log(exc: Exception, pauses: Iterator[float], n_before: int) -> float:
        pause = next(pauses)
        logger.error(
            "ledger_awaited seconds=%s retry=%s of=%s error=%s",
            pause,
            n_before + 1,
            most or "all",
            exc,
        )
        return pause

    found: list[Finding] = retry_over_time(
        ask, LedgerUnavailable, errback=log, max_retries=most if is_patient else 0
    )
    return found


def consume_apart(
    reliable: Reliable, process: WorkerProcess
) -> tuple[str, list[Callable[[], Any]]]:
    """Set the app's transport to ours, while the broker's URL stays as it is.

    Return the name of the unacked hash, and what undoes the change; the name is empty and nothing
    is changed where the broker is no Redis, or the project has a transport of its own.
    """
    conf = reliable.app.conf
    scheme = scheme_of(reliable.broker_url)
    path = transport_for(scheme)
    if path is None:
        logger.info("broker_keeps_deliveries scheme=%s", scheme)
        return "", []
    if conf.broker_transport and conf.broker_transport not in (path, "redis", "rediss", "sentinel"):
        logger.warning("broker_transport_kept transport=%s", conf.broker_transport)
        return "", []
    before, conf.broker_transport = conf.broker_transport, path
    return f"{UNACKED_PREFIX}{process.base}", [partial(setattr, conf, "broker_transport", before)]


def consume_own_queue(w: Any, reliable: Reliable) -> tuple[str, list[Callable[[], Any]]]:
    """Let a worker consume its own queue too, if tasks of its app name workers, or if Celery's
    setting ``worker_direct`` says so; return the queue's name, empty where there is none, and what
    undoes it.
    """
    queue = worker_direct(w.hostname)
    if w.app.conf.worker_direct:
        # Celery has added it by itself.
        return str(queue.name), []
    if not names_workers(w.app):
        return "", []
    queues = w.app.amqp.queues
    queues.select_add(queue)
    return str(queue.name), [
        partial(queues.deselect, [queue.name]),
        partial(queues.pop, queue.name, None),
    ]


#: Imported by whoever starts such a worker, as its fixtures do; by nobody else.
_MODULE = "celery.contrib.testing.worker"


def finish_when_embedded(w: Any, process: WorkerProcess, finish: Callable[[], None]) -> None:
    """Call *finish* when a worker has ended that Celery's ``start_worker`` runs in this process.

    Such a worker ends coldly: Celery sends no ``worker_shutdown``, and the process goes on, as a
    part of no worker.  Does nothing for any other worker.
    """
    testing = sys.modules.get(_MODULE)
    if testing is None or not isinstance(w, testing.TestWorkController):
        return

    def ended(worker: Any = None, **kwargs: Any) -> None:
        if worker is w:
            testing.test_worker_stopped.disconnect(ended, sender=w.app)
            finish()
            if current_worker() is process:
                set_current_worker(None)

    testing.test_worker_stopped.connect(ended, sender=w.app, weak=False)

"""Whether queues and ledger are in one database, where several URLs name the broker."""

from __future__ import annotations

from typing import Any

import pytest
from celery import Celery

from celery_reliable import ReliableTask
from celery_reliable.app import reliable_of

A, B = (f"sentinel://h{n}:26379/1" for n in "12")
MASTER = {"master_name": "mymaster"}


def work() -> None:
    """What no test here runs."""


def is_one_database(broker: str, ledger: str | None, **conf: Any) -> bool:
    """Whether an app takes queues and ledger to be together; nothing is connected."""
    with Celery("listed", broker=broker, set_as_current=False) as app:
        app.conf.update(reliable={"REDIS_URL": ledger} if ledger else {}, **conf)
        app.task(name="listed.work", base=ReliableTask, shared=False)(work)
        app.finalize()
        reliable = reliable_of(app)
        assert reliable.is_delivered_from_ledger is bool(reliable.queues_at)
        reliable.close()
        return reliable.is_delivered_from_ledger


@pytest.mark.parametrize(
    ("broker", "ledger", "conf"),
    [
        (A, "redis://h1:26379/1", {}),
        (A, B, {}),
        (A, "sentinel://h1:26379/2", {}),
        # kombu takes the database of one URL, and of another when it goes on to that.
        ("sentinel://h1;sentinel://h2/1", None, {}),
        ("sentinel://h1;redis://h2", None, {}),
        (A, None, {"broker_transport": "redis"}),
        (A, None, {"broker_transport_options": {**MASTER, "credential_provider": object()}}),
        # Which of them is in use, nobody knows.
        ("redis://h1;redis://h2", "redis://h1", {}),
    ],
)
def test_where_nobody_can_tell_they_are_in_two(
    broker: str, ledger: str | None, conf: dict[str, Any]
) -> None:
    assert is_one_database(f"{A};{B}", f"{B};{A}", broker_transport_options=MASTER)
    assert not is_one_database(broker, ledger, **{"broker_transport_options": MASTER, **conf})

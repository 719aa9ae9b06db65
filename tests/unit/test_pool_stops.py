"""When a pool is stopped: Celery asks for it at once, and some must wait."""

from __future__ import annotations

import pytest

from celery_reliable.worker.running_claims import PoolStop


class Pool:
    """Counts how often it was stopped."""

    n_stops = 0

    def stop(self) -> None:
        self.n_stops += 1


@pytest.mark.parametrize(
    ("name", "at_once"),
    [("prefork", 1), ("solo", 1), ("thread", 0), ("gevent", 0)],
)
def test_a_pool_that_waits_for_what_runs_stops_with_the_shutdown(name: str, at_once: int) -> None:
    pool = Pool()
    pool_stop = PoolStop(pool, name)
    pool.stop()
    assert pool.n_stops == at_once
    pool_stop.begin()
    assert pool.n_stops == 1


def test_a_pool_that_nobody_stopped_before_the_shutdown_stops_when_asked() -> None:
    pool = Pool()
    PoolStop(pool, "thread").begin()
    assert pool.n_stops == 0
    pool.stop()
    assert pool.n_stops == 1

"""A commit and a publication are two steps.

A process that is killed right after the commit publishes nothing. The row of a ``RowTask`` says so,
and the task ``celery_reliable.rows`` publishes it.
"""

from __future__ import annotations

from pathlib import Path

from tests.integration.shop import Shop
from tests.support.promises import promise
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for


@promise("commit-and-publish")
def test_a_row_whose_publisher_was_killed_is_found_and_its_task_runs_once(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    """The row says that its task is due, and the effect happens once."""
    shop = Shop(tmp_path, redis_server)
    try:
        shop.publish(0, n_killed=1)
        assert shop.statuses() == {"waiting": 1}
        with redis_server.client() as client:
            assert not client.llen("celery")

        shop.worker("one")
        shop.publish_waiting()

        wait_for(lambda: shop.statuses() == {"succeeded": 1}, 90, "it ran")
        assert shop.bookings() == {1: 1}
    finally:
        shop.close()

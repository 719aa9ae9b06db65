"""The figures of rows with tasks in a Django project: effects of tasks whose processes are killed
around the commit, and rows whose publishers are.  Small unless `--full` is given; `-s` shows them.
And frozen processes that wake up: what they write into their rows is refused.

On PostgreSQL too, where one is installed, and psycopg is.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from benchmarks.arena.servers import Postgres, why_no_postgres
from tests.conftest import Scale
from tests.integration.shop import Shop
from tests.support.promises import promise
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> str:
    """Which database the rows are in."""
    if request.param == "postgres":
        missing = why_no_postgres()
        if missing is None and find_spec("psycopg") is None:
            missing = "no psycopg is installed (pip install 'psycopg[binary]')"
        if missing:
            pytest.skip(missing)
    return str(request.param)


@pytest.fixture
def shop(tmp_path: Path, redis_server: RedisServer, database: str) -> Iterator[Shop]:
    with ExitStack() as stack:
        postgres = None
        if database == "postgres":
            # The folders of pytest are closed to the user that PostgreSQL wants to be.
            folder = Path(stack.enter_context(TemporaryDirectory())) / "cluster"
            folder.mkdir()
            postgres = Postgres(folder)
            postgres.start()
            stack.callback(postgres.stop)
        made = Shop(tmp_path, redis_server, postgres)
        stack.callback(made.close)
        yield made


@promise("commit-and-publish")
def test_effects_are_as_many_as_rows_whatever_is_killed(
    shop: Shop, scale: Scale, database: str
) -> None:
    # Each second kill-able order is killed twice: 500 kills are of 500 orders, and 200 more were
    # never published.
    count, n_killed = scale.of(full=(501, 200), small=(6, 3))
    began = time.monotonic()
    # It looks after its dead processes once a second.
    worker = shop.worker("one", scale.of(full=8, small=3))
    try:
        shop.publish(count, n_killed)
        worker.wait_until_ready()
        n_published = time.monotonic() - began
        wait_for(
            lambda: shop.statuses()["succeeded"] == count,
            scale.of(full=1500, small=60),
            "each order that was published",
        )
        # Nobody has published these.
        assert shop.statuses()["waiting"] == n_killed
        shop.publish_waiting()
        wait_for(
            lambda: shop.statuses()["succeeded"] == count + n_killed,
            scale.of(full=900, small=60),
            "each order that was committed",
        )
    finally:
        worker.end()
    third = count // 3
    assert shop.kills() == {"after": 2 * third, "before": third}
    booked = shop.bookings()
    assert len(booked) == count + n_killed
    assert set(booked.values()) == {1}
    print(
        f"\n{database}: {sum(shop.kills().values())} kills around the commit of {count} effects, "
        f"{n_killed} between commit and publication: {sum(booked.values())} effects of "
        f"{count + n_killed} rows, {time.monotonic() - began:.0f} s "
        f"({n_published:.0f} s of them publishing)"
    )


@promise("late-changes-nothing")
def test_a_frozen_process_that_wakes_up_writes_nothing_into_its_row(shop: Shop) -> None:
    shop.environ["LEASE"] = "4"
    frozen = shop.worker("one")
    shop.deliver(2)
    late = [wait_for(lambda n=n: shop.begun(n, "one"), 90, "an attempt") for n in (1, 2)]
    frozen.freeze()
    shop.worker("two")
    # One order has been delivered by another when they wake up, one is being delivered.
    shop.open_gate(1, "two")
    wait_for(lambda: shop.order(1)[0] == "succeeded", 90, "the first order")
    wait_for(lambda: shop.begun(2, "two"), 90, "the second attempt of the second order")
    delivered = shop.order(1)
    assert not set(late) & set(delivered)

    # The processes of the tasks alone, or their worker might end them before they write.
    for number, pid in enumerate(late, 1):
        shop.open_gate(number, "one")
        os.kill(pid, signal.SIGCONT)
    tried = {"begun", "update refused", "save refused", "effect refused"}
    for pid in late:
        wait_for(lambda pid=pid: len(shop.noted(pid)) == len(tried), 90, "what it tried")
        assert set(shop.noted(pid)) == tried
    assert shop.order(1) == delivered
    assert shop.order(2)[1:] == (0, 0)
    assert shop.bookings() == {1: 1}

    frozen.thaw()
    shop.open_gate(2, "two")
    wait_for(lambda: shop.order(2)[0] == "succeeded", 90, "the second order")
    assert not set(late) & set(shop.order(2))
    assert shop.bookings() == {1: 1, 2: 1}
    assert not set(late) & {pid for (pid,) in shop.ask("select process from shop_booking")}

"""What a worker was delivered is in an unacked hash of its own and comes out of it."""

from __future__ import annotations

import signal

import pytest

from tests.integration.conftest import Project
from tests.integration.figures import WORKERS
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full

UNACKED_LIST = "celery-reliable.unacked:reliable"


def test_what_could_not_be_acknowledged_is_before_the_worker_ends(
    apart: Project, ledger_server: RedisServer
) -> None:
    one = apart.start_worker("one")
    results = [apart.send("plain_late", gate) for gate in ("a", "b")]
    for result in results:
        apart.effects.run_of(result.id)
    client = apart.redis.client()
    # Else it would acknowledge with the taking of more.
    apart.app.control.cancel_consumer("celery", reply=True, limit=1, timeout=10)
    client.execute_command("ACL", "SETUSER", "default", "-hdel")
    apart.effects.open_gate("a")
    results[0].get(timeout=10)
    # While it works on: what ends during the stop is acknowledged at its very end.
    wait_for(lambda: client.execute_command("ACL", "LOG"), 10, "an acknowledgement is refused")
    one.signal_main(signal.SIGTERM)
    client.execute_command("ACL", "SETUSER", "default", "+hdel")
    apart.effects.open_gate("b")
    assert one.wait_until_ended() == 0
    assert not client.keys("unacked:*")
    assert not client.exists(UNACKED_LIST)
    assert not ledger_server.client().zcard(WORKERS)
    assert client.llen("celery") == 0

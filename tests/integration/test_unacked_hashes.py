"""What a worker was delivered is in an unacked hash of its own, and comes out of it whatever
happens.
"""

from __future__ import annotations

import signal

import pytest

from celery_reliable.message.envelope import Envelope
from tests.integration.conftest import Project
from tests.integration.figures import DEAD, RECORD, WORKERS
from tests.integration.project.awkward import add_tasks
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full

AWKWARD = "tests.integration.project.awkward"
UNACKED_LIST = "celery-reliable.unacked:reliable"
UNROUTABLE = (
    b'{"body": "e30=", "properties": {"delivery_info": {"exchange": "", "routing_key": null},'
    b' "delivery_tag": "1"}, "headers": {"task": "project.work", "id": "x"}}'
)


def dead_letters(server: RedisServer) -> dict[str, dict[bytes, bytes]]:
    """The dead letters: id -> record."""
    client = server.client()
    ids = [one.decode() for one in client.zrange(DEAD, 0, -1)]
    return {one: client.hgetall(RECORD + one) for one in ids}


def test_what_is_no_message_waits_for_the_ledger_and_stops_nobody(
    apart: Project, ledger_server: RedisServer
) -> None:
    worker = apart.start_worker("one")
    ledger_server.stop()
    client = apart.redis.client()
    client.lpush("celery", UNROUTABLE)
    plain = apart.send("plain_work", 0.01)
    wait_for(lambda: apart.effects.finished(plain.id), 15, "the message behind it")
    ledger_server.start()
    wait_for(lambda: dead_letters(ledger_server), 30, "it is among the dead letters")
    (letter,) = dead_letters(ledger_server).values()
    assert letter[b"reason"] == b"unprocessable"
    # But for the marks of having been given back meanwhile.
    kept = Envelope.from_text(letter[b"message"].decode()).body
    assert kept.startswith(UNROUTABLE[:16])
    wait_for(lambda: not client.keys("unacked:*"), 10, "its unacked hash is empty")
    assert client.llen("celery") == 0
    assert worker.is_running


def test_what_could_not_be_acknowledged_is_before_the_worker_ends(
    apart: Project, ledger_server: RedisServer
) -> None:
    add_tasks(apart.app)
    one = apart.start_worker("one", app=AWKWARD)
    results = [apart.send("plain_late", gate) for gate in ("a", "b")]
    for result in results:
        apart.effects.run_of(result.id)
    client = apart.redis.client()
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

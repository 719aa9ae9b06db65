"""Celery's purge empties queues, not the ledger.

What ``celery purge`` removed is found missing and sent again; ``reliable purge`` removes it.
"""

from __future__ import annotations

from tests.integration.commands import Run
from tests.integration.conftest import Project
from tests.integration.figures import RECORD
from tests.support.promises import promise


@promise("purge-is-undone")
def test_what_is_purged_stays_away_and_what_celery_purges_does_not(soon: Project, run: Run) -> None:
    """`reliable purge` removes messages and records, of the queues that it is told."""
    kept = soon.send("work", 0, queue="kept")
    gone = [soon.send(name, 0) for name in ("work", "plain_work", "work")]
    client = soon.redis.client()
    # Anybody may have put it there; kombu cannot read either.
    client.rpush("celery", "no message", '{"body": "", "properties": {}}')
    asked = run("purge", "-Q", "celery", project=soon)
    assert (asked.code, client.llen("celery")) == (1, 5)
    # Who names none means none.
    assert run("purge", "-Q", "", "--yes", "--json", project=soon).json["messages"] == 0
    done = run("purge", "-Q", "celery,other", "--yes", "--json", project=soon)
    assert (done.code, done.json) == (0, {"messages": 5, "records": 2})
    assert client.llen("celery") == 0
    assert not client.keys("unacked*")
    assert client.keys(RECORD + "*") == [(RECORD + kept.id).encode()]
    again = run("purge", "--yes", "-Q", "celery", project=soon)
    assert again.out.split() == ["messages", "0", "records", "0"]

    undone = soon.send("work", 0)
    # Celery 5.6 empties the other queue, too.
    assert soon.app.control.purge() in (1, 2)
    assert client.llen("celery") == 0
    soon.start_worker("one", options=("-Q", "celery,kept"))
    assert kept.get(timeout=30) == "worked"
    assert undone.get(timeout=30) == "worked"
    assert not any(soon.effects.runs(result.id) for result in gone)

"""Celery's purge empties queues, not the ledger.

What ``celery purge`` removed is found missing and sent again; ``reliable purge`` removes it.
"""

from __future__ import annotations

from tests.integration.commands import Run
from tests.integration.conftest import SOON, Project
from tests.integration.figures import RECORD
from tests.support.promises import promise


@promise("purge-is-undone")
def test_what_is_purged_is_not_sent_again(project: Project, run: Run) -> None:
    """`reliable purge` removes messages and records, of the queues that it is told."""
    hasty = project.with_settings(reliable=SOON)
    kept = hasty.send("work", 0, queue="kept")
    gone = [hasty.send(name, 0) for name in ("work", "plain_work", "work")]
    client = project.redis.client()
    # Anybody may have put it there; kombu cannot read either.
    client.rpush("celery", "no message", '{"body": "", "properties": {}}')
    asked = run("purge", "-Q", "celery", project=hasty)
    assert (asked.code, client.llen("celery")) == (1, 5)
    done = run("purge", "-Q", "celery,other", "--force", "--json", project=hasty)
    assert (done.code, done.json) == (0, {"messages": 5, "records": 2})
    assert client.llen("celery") == 0
    assert not client.keys("unacked*")
    assert client.keys(RECORD + "*") == [(RECORD + kept.id).encode()]
    again = run("purge", "--force", "-Q", "celery", project=hasty)
    assert again.out.split() == ["messages", "0", "records", "0"]
    hasty.start_worker("one", options=("-Q", "celery,kept"))
    assert kept.get(timeout=10) == "worked"
    assert not any(project.effects.runs(result.id) for result in gone)


@promise("purge-is-undone")
def test_what_celery_purges_is_sent_again(project: Project) -> None:
    """A worker that starts later runs it."""
    hasty = project.with_settings(reliable=SOON)
    result = hasty.send("work", 0)
    assert hasty.app.control.purge() == 1
    assert project.redis.client().llen("celery") == 0
    hasty.start_worker("one")
    assert result.get(timeout=30) == "worked"

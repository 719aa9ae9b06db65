"""One namespace, one app.

Apps that share a Redis and are not the same project need different ``NAMESPACE`` settings.
"""

from __future__ import annotations

from tests.integration.conftest import Project
from tests.integration.figures import DEAD, passes_finish
from tests.integration.project.pooled import add_tasks
from tests.support.promises import promise
from tests.support.waiting import wait_for


@promise("one-namespace")
def test_what_only_the_other_app_knows_is_left_to_it(project: Project) -> None:
    """A worker of another app in the namespace says so, and leaves tasks that it does not know."""
    settings = {"SWEEP_SECONDS": 0.5, "QUEUED_SECONDS": 5, "LEASE_SECONDS": 3}
    reliable = {"REDIS_URL": project.redis.url(), **settings}
    # Whoever wakes a task has to send it: it is in no queue of the ledger's own database.
    ours = project.with_settings(reliable=reliable, broker_url=project.redis.url(4))
    other = project.with_settings(reliable=reliable, broker_url=project.redis.url(5))
    pooled = "tests.integration.project.pooled"
    # A task that only one of the two apps knows.
    add_tasks(ours.app)
    knows = ours.start_worker("knows", app=pooled)
    knows_not = other.start_worker("knows-not")
    client = project.redis.client()
    # Who came second is told, and each what a power cut would cost, and its broker by its own URL.
    assert "check=namespace_shared" not in knows.log_text()
    assert "check=namespace_shared" in knows_not.log_text()
    for worker, database in ((knows, 4), (knows_not, 5)):
        assert "check=redis_loses_seconds" in worker.log_text()
        url = f"redis://:**@127.0.0.1:{project.redis.port}/{database}"
        assert f".> transport:   {url}" in worker.log_text()

    results = [ours.send("spin", 0, countdown=2 + n / 2) for n in range(6)]

    for result in results:
        wait_for(lambda r=result: project.effects.finished(r.id), 20, "it runs where it is known")
    passes_finish(project.redis, 2, 15)
    assert client.zcard(DEAD) == 0
    assert not project.redis.client(5).llen("celery")

"""What a task costs in requests to Redis: steps are one where ledger, queue and results share a
server, and still the same steps where they do not.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from celery_reliable.broker import take_text
from celery_reliable.ledger.attempts import taking_script
from celery_reliable.ledger.scripts import script, together
from tests.integration.conftest import Project
from tests.support.proxy import RedisProxy
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        bool(os.environ.get("TESTS_APART")),
        reason="where no two steps are one, there is none to count",
    ),
]

TASKS = 20


def watched(proxy: RedisProxy) -> dict[str, Any]:
    """Count each of the requests that a task may take."""
    plain = {name: proxy.watch(name) for name in ("LPUSH", "GET", "SETEX")}
    scripts = {name: script(name).sha for name in ("record", "settle")}
    # A process that takes its own messages takes the next with the end of the last.
    scripts["settle and take"] = together(script("settle"), taking_script(take_text())).sha
    return plain | {name: proxy.watch(script=sha) for name, sha in scripts.items()}


def counts(rules: dict[str, Any]) -> dict[str, int]:
    return {name: rule.matched for name, rule in rules.items() if rule.matched}


@pytest.mark.parametrize(
    ("apart", "published", "run"),
    [
        ("", {"record": TASKS}, {"settle and take": TASKS}),
        ("queue", {"record": TASKS, "LPUSH": TASKS}, {"settle": TASKS}),
        ("result", {"record": TASKS}, {"settle and take": TASKS, "GET": TASKS, "SETEX": TASKS}),
    ],
)
def test_steps_are_one_where_they_can_be(
    apart: str, published: dict[str, int], run: dict[str, int], project: Project, proxy: RedisProxy
) -> None:
    url = proxy.url()
    chosen = project.with_settings(
        broker_url=url,
        # The same server under another name is another one, as far as can be told.
        result_url=url.replace("127.0.0.1", "localhost") if apart == "result" else proxy.url(1),
        reliable={"REDIS_URL": proxy.url(3)} if apart == "queue" else {},
    )
    results = [chosen.send("work", 0) for _ in range(2)]
    sending = watched(proxy)
    results += [chosen.send("work", 0) for _ in range(TASKS)]
    assert counts(sending) == published

    chosen.start_worker("one", concurrency=1)
    for result in results:
        assert result.get(timeout=20) == "worked"
    keys = project.redis.client(3 if apart == "queue" else 0)
    wait_for(lambda: not keys.keys("*task:*"), 20, "the first are settled")
    running, removals = watched(proxy), proxy.watch("HDEL")
    for _ in range(TASKS):
        chosen.send("work", 0)
    wait_for(lambda: not keys.keys("*task:*"), 20, "the others are settled")
    found = counts(running)
    # These were asked for by who published, just now.
    for name in published:
        found[name] -= published[name]
    assert {name: number for name, number in found.items() if number} == run
    # Acknowledgements go with what is fetched, or some at once.
    assert removals.matched < TASKS

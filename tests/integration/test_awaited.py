"""Results are subscribed to when somebody waits for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from celery import Celery
from celery.result import AsyncResult, GroupResult

from tests.integration.conftest import Project
from tests.integration.project.factory import Settings
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full

SECONDS = 20.0

Store = Callable[..., None]


@pytest.fixture
def store(project_settings: Settings) -> Iterator[Store]:
    """Store results as a worker does: over connections of its own."""
    app = Celery(backend=project_settings.result_url, set_as_current=False)

    def one(result: AsyncResult[Any], value: Any, state: str = "SUCCESS") -> None:
        app.backend.store_result(result.id, value, state)

    yield one
    app.close()
    app.backend.client.close()


def channels(project: Project) -> set[str]:
    """What somebody is subscribed to."""
    return {one.decode() for one in project.redis.client(decode_responses=False).pubsub_channels()}


def waiting(project: Project, *results: AsyncResult[Any]) -> bool:
    """Whether somebody has subscribed to these."""
    return all(f"celery-task-meta-{result.id}" in channels(project) for result in results)


def _get(result: AsyncResult[Any]) -> Any:
    return result.get(timeout=SECONDS)


def _join(result: AsyncResult[Any]) -> Any:
    return GroupResult("run", [result], app=result.app).get(timeout=SECONDS)[0]


def _iterate(result: AsyncResult[Any]) -> Any:
    found = GroupResult("run", [result], app=result.app).iter_native(timeout=SECONDS)
    return next(iter(found))[1]["result"]


def _then(result: AsyncResult[Any]) -> Any:
    found: list[Any] = []
    result.then(lambda one: found.append(one.result))
    return result.get(timeout=SECONDS) if not found else found[0]


WAYS = [_get, _join, _iterate, _then]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("when", ["before", "while"])
def test_a_result_is_found_that_is_stored_before_or_while_somebody_waits(
    project: Project, store: Store, way: Callable[[AsyncResult[Any]], Any], when: str
) -> None:
    result, nobodys = project.send("work", 0), project.send("work", 0)

    def store_it() -> None:
        if when == "while":
            wait_for(lambda: waiting(project, result), SECONDS, "the subscription")
        assert not waiting(project, nobodys)
        store(result, "stored")

    with ThreadPoolExecutor(1) as beside:
        # Celery's backends are each a thread's own, so the waiting is not in the other one.
        stored = beside.submit(store_it)
        if when == "before":
            stored.result(SECONDS)
        assert way(result) == "stored"
        stored.result(SECONDS)
    wait_for(lambda: not channels(project), SECONDS, "the end of the subscription")

"""What an object is called at each door: by its id for who may see arguments, else by its key."""

from __future__ import annotations

from html import unescape
from typing import Any

import pytest
from celery import Celery

from celery_reliable import ReliableTask
from celery_reliable.operations import Desk
from tests.contrib.shown import LIST, page

V1 = "/reliable/v1"


@pytest.fixture
def ids(celery_project: Celery) -> list[str]:
    """One that has its object, and one in line."""

    @celery_project.task(
        name="accounts.sync",
        base=ReliableTask,
        shared=False,
        object_id=lambda account, part: (account, part),
        on_conflict="wait",
        place="queued",
    )
    def sync(account: str, part: int) -> None: ...

    return [sync.delay("acme", 7).id for _ in range(2)]


def test_who_may_see_arguments_sees_what_an_object_is_called(
    ids: list[str], desk: Desk, log_in: Any
) -> None:
    name = "accounts.sync ('acme', 7)"
    (key,) = (one.object_key for one in desk.objects.page().items)
    for sees, client in ((True, log_in("view", "see_arguments")), (False, log_in("view"))):
        called = name if sees else f"accounts.sync {key}"
        pages = (
            "objects/",
            f"objects/object/{key}/",
            "tasks/",
            *(f"tasks/task/{one}/" for one in ids),
        )
        for path in pages:
            shown = unescape(page(client.get(LIST + path)))
            assert called in shown, path
            assert sees or "acme" not in shown
        waits = unescape(page(client.get(f"{LIST}tasks/task/{ids[1]}/")))
        assert f"stands in line for the object {called}" in waits

        asked = {"task": "accounts.sync", "object_id": '["acme", 7]'}
        (own,) = client.get(f"{V1}/objects").json()["items"]
        assert own["object_name"] == called
        one = client.get(f"{V1}/task", {"id": ids[0]}).json()
        assert one["object_name"] == called
        listed = client.get(f"{V1}/tasks").json()
        assert sees or "acme" not in str(listed)
        # Who asks by the id knows it.
        assert "acme" in client.get(f"{V1}/object", asked).json()["object_name"]

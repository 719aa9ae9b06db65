"""What an object is called at each door: by its id for who may see arguments, else by its key."""

from __future__ import annotations

from html import unescape
from typing import Any

import pytest
from celery import Celery
from django.http import HttpResponse
from django.test.utils import override_settings

from celery_reliable import ReliableTask
from celery_reliable.operations import Desk

LIST = "/admin/celery_reliable/deadletter/"
V1 = "/reliable/v1"


@pytest.fixture
def ids(celery_project: Celery) -> dict[str, list[str]]:
    """Of each task one that has its object, and one in line."""

    @celery_project.task(
        name="accounts.sync",
        base=ReliableTask,
        shared=False,
        object_id=lambda account, part: (account, part),
        on_conflict="wait",
        place="queued",
    )
    def sync(account: str, part: int) -> None: ...

    @celery_project.task(
        name="archive.export",
        base=ReliableTask,
        shared=False,
        at_most=1,
        on_conflict="wait",
        place="queued",
    )
    def export(number: int) -> None: ...

    return {
        "sync": [sync.delay("acme", 7).id for _ in range(2)],
        "export": [export.delay(number).id for number in (1, 2)],
    }


def text(answer: HttpResponse) -> str:
    assert answer.status_code == 200
    return unescape(answer.content.decode())


def test_who_may_see_arguments_sees_what_an_object_is_called(
    ids: dict[str, list[str]], celery_project: Celery, log_in: Any
) -> None:
    name = "accounts.sync ('acme', 7)"
    with Desk(celery_project) as desk:
        keys = {one.holders[0].name: one.object_key for one in desk.objects.page().items}
    key = keys["accounts.sync"]
    for sees, client in ((True, log_in("view", "see_arguments")), (False, log_in("view"))):
        called = name if sees else f"accounts.sync {key}"
        pages = (
            "objects/",
            f"objects/object/{key}/",
            "tasks/",
            *(f"tasks/task/{one}/" for one in ids["sync"]),
        )
        for page in pages:
            shown = text(client.get(LIST + page))
            assert called in shown, page
            assert sees or "acme" not in shown
        waits = text(client.get(f"{LIST}tasks/task/{ids['sync'][1]}/"))
        assert f"stands in line for the object {called}" in waits

        with override_settings(ROOT_URLCONF="tests.contrib.api_urls"):
            asked = {"task": "accounts.sync", "id": '["acme", 7]'}
            (own,) = (one for one in objects(client) if one["object_key"] == key)
            assert own["object_name"] == called
            one = client.get(f"{V1}/task", {"id": ids["sync"][0]}).json()
            assert one["object_name"] == called
            listed = client.get(f"{V1}/tasks").json()
            assert sees or "acme" not in str(listed)
            # Who asks by the id knows it.
            assert "acme" in client.get(f"{V1}/object", asked).json()["object_name"]

            # A task that is limited as a whole has no ids.
            (limited,) = (one for one in objects(client) if one["object_key"] != key)
            assert limited["object_name"] == "archive.export"


def objects(client: Any) -> list[dict[str, Any]]:
    return list(client.get(f"{V1}/objects").json()["items"])

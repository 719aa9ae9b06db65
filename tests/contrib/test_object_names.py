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


def text(answer: HttpResponse) -> str:
    assert answer.status_code == 200
    return unescape(answer.content.decode())


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
        for page in pages:
            shown = text(client.get(LIST + page))
            assert called in shown, page
            assert sees or "acme" not in shown
        waits = text(client.get(f"{LIST}tasks/task/{ids[1]}/"))
        assert f"stands in line for the object {called}" in waits

        with override_settings(ROOT_URLCONF="tests.contrib.api_urls"):
            asked = {"task": "accounts.sync", "id": '["acme", 7]'}
            (own,) = client.get(f"{V1}/objects").json()["items"]
            assert own["object_name"] == called
            one = client.get(f"{V1}/task", {"id": ids[0]}).json()
            assert one["object_name"] == called
            listed = client.get(f"{V1}/tasks").json()
            assert sees or "acme" not in str(listed)
            # Who asks by the id knows it.
            assert "acme" in client.get(f"{V1}/object", asked).json()["object_name"]

"""Tasks that live are revoked in the admin, and a pass is run: asked first, done once, noted."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from celery import Celery

from celery_reliable.operations import Desk
from tests.contrib.shown import ACT, LIST, page

REVOKE, SWEEP, MOVE = (f"{ACT}{one}/" for one in ("revoke_tasks", "sweep", "move_tasks"))


@pytest.fixture
def live(celery_project: Celery) -> Callable[[], set[str]]:
    """The ids of the tasks that live."""

    def live() -> set[str]:
        with Desk(celery_project) as desk:
            return {one.task_id for one in desk.tasks.page().items}

    return live


def chosen(shown: str) -> list[str]:
    return re.findall(r'type="hidden" name="ids" value="([^"]+)"', shown)


def test_those_chosen_are_revoked_when_somebody_says_yes(
    bill: Any, log_in: Any, live: Callable[[], set[str]], put: Callable[..., None]
) -> None:
    put("dead")
    queued, parked, third = bill.delay("secret-1").id, bill.apply_async(countdown=99).id, "a/b c"
    bill.apply_async(task_id=third)
    client = log_in("view", "operate")
    shown = page(client.get(f"{LIST}tasks/"))
    assert shown.count('type="checkbox" name="ids"') == 3
    shown = page(client.get(f"{LIST}tasks/task/{queued}/"))
    (address,) = re.findall(r'href="([^"]+)" class="button" id="desk-revoke"', shown)
    assert chosen(page(client.get(address))) == [queued]
    for wrong in (
        {},
        {"ids": [str(number) for number in range(501)]},
        {"ids": queued, "if_running": "x"},
    ):
        assert client.post(REVOKE, {**wrong, "confirmed": "Yes"}).status_code == 400
    assert live() == {queued, parked, third}

    asked = page(client.post(REVOKE, {"ids": [queued, "a%2Fb%20c", "dead", "nobody"]}))

    assert "Revoke 2 tasks for good?" in asked
    assert chosen(asked) == [queued, "a%2Fb%20c", "dead", "nobody"]
    for fate in ("Nobody runs these", "These are dead letters, and stay", "Gone already"):
        assert fate in asked
    assert "secret" not in asked
    assert live() == {queued, parked, third}
    given = {"ids": chosen(asked), "if_running": "stop", "confirmed": "Yes"}
    told = page(client.post(REVOKE, given, follow=True))
    assert "2 tasks revoked." in told
    assert live() == {parked}
    again = page(client.post(REVOKE, given, follow=True))
    assert "Gone already: 3." in again
    assert "by django:user-0" in page(client.get(f"{LIST}tasks/task/{queued}/"))


def test_one_is_moved_from_its_page(bill: Any, log_in: Any, celery_project: Celery) -> None:
    task_id = bill.delay("secret-1").id
    client = log_in("view", "operate")

    def move(**how: str) -> str:
        """What is asked, and what is told when somebody says yes to it."""
        asked = client.post(MOVE, {"ids": task_id, **how}).content.decode()
        form = asked.partition('id="desk-confirm"')[2].partition("</form>")[0]
        if 'id="desk-problem"' in asked:
            return asked
        with Desk(celery_project) as desk:
            assert desk.audit() == before, "nothing is done before the answer"
        assert 'id="desk-yes"' in form
        told = page(client.post(MOVE, {"ids": task_id, **how, "confirmed": "Yes"}, follow=True))
        assert "secret" not in asked + told
        return f"{asked} {told}"

    with Desk(celery_project) as desk:
        before = desk.audit()
    told = move(workers="gpu-*, alpha@host", prefer="gpu-big")
    assert "Move 1 task?" in told
    assert "gpu-*, alpha@host" in told
    # Its usual queue is not where it goes.
    told = page(client.get(f"{LIST}tasks/task/{task_id}/"))
    assert "It was moved, and waits to be sent to a worker of " in told
    with Desk(celery_project) as desk:
        moved = desk.tasks.get(task_id)
        end, begin = before = desk.audit()
    assert moved.only_workers == ("gpu-*", "alpha@host")
    assert moved.prefer_workers == ("gpu-big",)
    assert (begin.act, begin.by, end.done) == ("move", "django:user-0", 1)
    # Nobody means any worker by saying nothing.
    assert "Workers: This field is required." in move()
    assert client.post(MOVE, {"workers": "x", "confirmed": "Yes"}).status_code == 400
    assert "is not" in move(workers="x" * 1001)
    with Desk(celery_project) as desk:
        assert desk.tasks.get(task_id) == moved
    assert "1 task moved." in move(workers="*")
    with Desk(celery_project) as desk:
        assert desk.tasks.get(task_id).only_workers == ()


def test_what_a_call_says_of_its_own_is_on_its_page(bill: Any, log_in: Any) -> None:
    bill.app.conf.worker_direct = True
    task_id = bill.apply_async(max_losses=7, only_workers="gpu-*", priority=3).id

    shown = page(log_in("view").get(f"{LIST}tasks/task/{task_id}/"))

    assert "max_losses=7" in shown
    assert "only_workers=" not in shown.partition("By its call")[2]
    assert re.search(r"Priority</th><td>3<", shown)


def test_a_pass_is_run_by_a_button(log_in: Any, celery_project: Celery) -> None:
    client = log_in("view", "operate")
    assert 'id="desk-sweep"' in page(client.get(f"{LIST}desk/"))

    yes = {"confirmed": "yes"}
    assert "A pass was run" in page(client.post(SWEEP, yes, follow=True))
    assert "Nothing was to be done: a pass runs, or has just finished." in page(
        client.post(SWEEP, yes, follow=True)
    )

    with Desk(celery_project) as desk:
        assert [one.act for one in desk.audit()] == ["sweep"] * 4

"""Acts in the admin on letters, tasks and orders: asked first, done once, noted."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest
import redis
from celery import Celery
from django.contrib.admin.models import LogEntry

from celery_reliable.contrib.django.visits import ACT_PAGES
from celery_reliable.operations import Desk
from celery_reliable.operations.dead_letters import DeadLetters
from tests.contrib.shown import ACT, LIST, REPLAY, page

# -- many dead letters

#: Imported when Django is set up.
ACTING = "celery_reliable.contrib.django.pages"
_INPUT = re.compile(r'<input type="(?:hidden|number|text)" name="(\w+)"[^>]*?value="([^"]*)"')


def fields(shown: str) -> dict[str, str]:
    """What the form of a page would post, without a browser."""
    form = shown.partition('class="desk"')[2].partition("<!-- END Content -->")[0]
    given = {name: unescape(value) for name, value in _INPUT.findall(form)}
    given.pop("csrfmiddlewaretoken", None)
    return {**given, "confirmed": "yes"}


def asked(client: Any, act: str, **given: str) -> dict[str, str]:
    """What is posted by whoever says yes."""
    return fields(page(client.post(act, given or {"all": "on"})))


def total(shown: str) -> tuple[str, str]:
    (found,) = re.findall(r'data-total="(\d+)" data-exact="(\w+)"', shown)
    return found


@pytest.fixture
def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{ACTING}._LONGEST_SECONDS", 0.0)


def go_on(client: Any, answer: Any) -> str:
    """Say yes as long as more is left; return what the last page says."""
    while answer.status_code == 200:
        answer = client.post(REPLAY, fields(page(answer)))
    return page(client.get(answer["Location"]))


@pytest.fixture
def some(put: Callable[..., None]) -> None:
    for number in range(3):
        put(f"bill-{number}")
    put("mail", "KeyError: x", name="shop.mail")


@pytest.mark.usefixtures("some")
def test_the_question_says_how_many(log_in: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    client = log_in("view", "change", "delete")
    group = re.findall(r'data-group="(\w+)"', page(client.get(f"{LIST}groups/")))[0]
    # A slow machine counts all of them, too.
    monkeypatch.setattr(f"{ACTING}._COUNT_SECONDS", 30.0)

    for given, count in (
        ({"all": "on"}, "4"),
        ({"task": "shop.bill"}, "3"),
        ({"group": group}, "3"),
    ):
        shown = page(client.post(REPLAY, given))
        assert total(shown) == (count, "yes"), given
    # What is for good looks so.
    for act, is_for_good in ((REPLAY, False), (f"{ACT}discard_dead_letters/", True)):
        assert ("desk-danger" in page(client.post(act, {"all": "on"}))) == is_for_good
    assert "Replay 0 dead letters?" in page(client.post(REPLAY, {"task": "x", "group": group}))
    monkeypatch.setattr(f"{ACTING}._COUNT_SECONDS", 0.0)
    shown = page(client.post(REPLAY, {"task": "shop.*"}))
    counted, is_exact = total(shown)
    assert (int(counted) < 4, is_exact) == (True, "no")
    assert f"Replay at least {counted} dead letter" in shown
    assert client.post(REPLAY, {"older_than_seconds": "x"}).status_code == 400


@pytest.mark.usefixtures("some", "one_at_a_time")
def test_what_is_left_is_asked_about_and_none_is_done_twice(
    put: Callable[..., None], log_in: Any, letters: DeadLetters, shared_redis: redis.Redis
) -> None:
    client = log_in("view", "change")
    given = asked(client, REPLAY, task="shop.bill", rate="1000")
    before = shared_redis.llen("celery")
    # It comes after the question.
    put("bill-late")

    first = client.post(REPLAY, given)
    assert letters.count() == 4
    shown = page(first)
    assert "1 dead letter replayed." in shown
    # What came after the question is not meant.
    assert total(shown) == ("2", "yes")
    # The same again, as by somebody who pressed twice, does no letter twice.
    client.post(REPLAY, given)
    assert letters.count() == 3
    assert "1 dead letter replayed." in go_on(client, first)

    assert {one.task_id for one in letters.list()} == {"mail", "bill-late"}
    assert shared_redis.llen("celery") - before == 3


@pytest.mark.usefixtures("some")
def test_a_limit_and_a_queue_are_kept_to(
    log_in: Any, letters: DeadLetters, namespace: str, shared_redis: redis.Redis
) -> None:
    client = log_in("view", "change")
    queue = f"spare-{namespace}"
    given = {**asked(client, REPLAY), "limit": "2", "to_queue": queue, "rate": "1000"}

    assert client.post(REPLAY, given).status_code == 302

    assert letters.count() == 2
    assert shared_redis.llen(queue) == 2
    for name, value in (("limit", "x"), ("rate", "0"), ("rate", "nan"), ("before", "-1")):
        refused = client.post(REPLAY, {**given, name: value})
        assert refused.status_code == 400, name
    assert client.post(REPLAY, {**given, "cursor": "x", "limit": ""}).status_code == 400
    assert letters.count() == 2
    shared_redis.delete(queue)


@pytest.mark.usefixtures("some", "one_at_a_time")
def test_what_was_cut_off_is_done_by_the_same_act_anew(log_in: Any, letters: DeadLetters) -> None:
    """By whoever has the permission, and sees in the audit what it was."""
    client = log_in("view", "change")
    client.post(REPLAY, {**asked(client, REPLAY, task="shop.bill"), "rate": "50"})
    other = log_in("view", "change")

    notes = page(other.get(f"{LIST}audit/"))
    answer = other.post(REPLAY, asked(other, REPLAY, task="shop.bill"))

    assert "django:user-0" in notes
    assert "shop.bill" in notes
    go_on(other, answer)
    assert {one.task_id for one in letters.list()} == {"mail"}


#: The permissions that an act needs, all of them.
NEEDED = {
    "replay_dead_letters": {"change"},
    "discard_dead_letters": {"delete"},
    "revoke_tasks": {"operate"},
    "give_order": {"operate"},
    "resume": {"operate"},
    "sweep": {"operate"},
}
GIVEN = {
    "ids": "bill-0",
    "kind": "pause",
    "target": "mail",
    "orders": "mail",
    "confirmed": "yes",
}


@pytest.mark.usefixtures("some", "bill")
def test_each_act_needs_its_permissions_and_a_token(
    log_in: Any, letters: DeadLetters, celery_project: Celery, desk: Desk
) -> None:
    assert set(NEEDED) == set(ACT_PAGES)
    everything = {"view", "change", "delete", "operate", "see_arguments"}
    root, without_token = log_in(is_superuser=True), log_in(is_superuser=True, csrf=True)
    celery_project.tasks["shop.bill"].delay()
    for act, needed in NEEDED.items():
        for permission in needed:
            lacks = log_in(*everything - {permission})
            assert lacks.get(f"{ACT}{act}/", GIVEN).status_code == 403, act
            assert lacks.post(f"{ACT}{act}/", GIVEN).status_code == 403, act
        assert without_token.post(f"{ACT}{act}/", GIVEN).status_code == 403, act
        # Nothing is done by a GET, and nothing by another method.
        assert root.get(f"{ACT}{act}/", GIVEN).status_code == 200, act
        assert root.put(f"{ACT}{act}/", GIVEN).status_code == 405, act
    assert root.post(f"{ACT}get/", GIVEN).status_code == 404
    places = ("", "tasks/", "tasks/task/bill-0/", "orders/", "desk/")
    shown = [page(root.get(f"{LIST}{one}")) for one in places]
    assert all("/act/" in one for one in shown)
    viewer = log_in("view")
    shown = [page(viewer.get(f"{LIST}{one}")) for one in places]
    assert not any("/act/" in one or "secret" in one for one in shown)
    assert (letters.count(), desk.orders.all(), desk.audit()) == (4, [], [])


# -- tasks that live, and a pass

REVOKE, SWEEP = (f"{ACT}{one}/" for one in ("revoke_tasks", "sweep"))


def live(desk: Desk) -> set[str]:
    """The ids of the tasks that live."""
    return {one.task_id for one in desk.tasks.page().items}


def chosen(shown: str) -> list[str]:
    return re.findall(r'type="hidden" name="ids" value="([^"]+)"', shown)


def test_those_chosen_are_revoked_when_somebody_says_yes(
    bill: Any, log_in: Any, desk: Desk, put: Callable[..., None]
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
    assert live(desk) == {queued, parked, third}

    asked = page(client.post(REVOKE, {"ids": [queued, "a%2Fb%20c", "dead", "nobody"]}))

    assert "Revoke 2 tasks for good?" in asked
    assert chosen(asked) == [queued, "a%2Fb%20c", "dead", "nobody"]
    for fate in ("Nobody runs these", "These are dead letters, and stay", "Gone already"):
        assert fate in asked
    assert "secret" not in asked
    assert live(desk) == {queued, parked, third}
    given = {"ids": chosen(asked), "if_running": "stop", "confirmed": "Yes"}
    told = page(client.post(REVOKE, given, follow=True))
    assert "2 tasks revoked." in told
    assert live(desk) == {parked}
    again = page(client.post(REVOKE, given, follow=True))
    assert "Gone already: 3." in again
    assert "by django:user-0" in page(client.get(f"{LIST}tasks/task/{queued}/"))


def test_what_a_call_says_of_its_own_is_on_its_page(bill: Any, log_in: Any) -> None:
    bill.app.conf.worker_direct = True
    task_id = bill.apply_async(max_losses=7, only_workers="gpu-*", priority=3).id

    shown = page(log_in("view").get(f"{LIST}tasks/task/{task_id}/"))

    assert "max_losses=7" in shown
    assert "only_workers=" not in shown.partition("By its call")[2]
    assert re.search(r"Priority</th><td>3<", shown)


def test_a_pass_is_run_by_a_button(log_in: Any, desk: Desk) -> None:
    client = log_in("view", "operate")
    assert 'id="desk-sweep"' in page(client.get(f"{LIST}desk/"))

    yes = {"confirmed": "yes"}
    assert "A pass was run" in page(client.post(SWEEP, yes, follow=True))
    assert "Nothing was to be done: a pass runs, or has just finished." in page(
        client.post(SWEEP, yes, follow=True)
    )

    assert [one.act for one in desk.audit()] == ["sweep"] * 4


# -- orders

ORDERS = f"{LIST}orders/"
GIVE, RESUME = f"{ACT}give_order/", f"{ACT}resume/"
YES = {"confirmed": "Yes"}


def test_a_queue_is_paused_and_resumed_by_buttons(log_in: Any, desk: Desk) -> None:
    client = log_in("view", "operate")
    assert "Nothing is paused" in page(client.get(ORDERS))
    given = {"kind": "pause", "target": "mail", "why": "<b>no", "for_seconds": "15m", "stop": "1"}
    refused = client.post(GIVE, {**given, **YES})
    assert "Nobody knows a queue mail" in refused.content.decode()
    assert refused.status_code == 400
    given["later"] = "1"

    asked = page(client.post(GIVE, given))

    assert "Give order?" in asked
    assert 'value="mail"' in asked
    assert desk.orders.all() == []
    told = page(client.post(GIVE, {**given, **YES}, follow=True))
    assert "Pause mail: order" in told
    assert "&lt;b&gt;no" in told
    (order,) = desk.orders.all()
    assert (order.kind.value, order.target, order.by) == ("pause", "mail", "django:user-0")
    assert order.stops
    assert order.until is not None
    assert order.given_at is not None
    assert (order.until - order.given_at).total_seconds() == 900
    assert "pause mail" in page(client.get(f"{LIST}desk/"))

    asked = page(client.get(RESUME, {"orders": order.id}))
    assert "Resume?" in asked
    assert f'value="{order.id}"' in asked
    one = {"orders": order.id, **YES}
    assert "Nothing is paused" in page(client.post(RESUME, one, follow=True))

    assert desk.orders.all() == []
    acts = [(one.act, one.phase, one.by) for one in reversed(desk.audit())]
    assert acts == [
        (act, phase, "django:user-0") for act in ("pause", "resume") for phase in ("begin", "end")
    ]
    assert "There is no order" in client.post(RESUME, one).content.decode()
    # An object's id may be an argument of a task, and Django's log is for good.
    strike = {"kind": "strike", "target": "shop.any", "object_id": "secret-7", "later": "1"}
    assert "strike shop.any" in page(client.post(GIVE, {**strike, **YES}, follow=True))
    assert "secret-7" not in str(LogEntry.objects.values_list("object_repr", "change_message"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"target": "mail", "for_seconds": "soon"}, "is no length of time"),
        ({"target": "mail", "for_seconds": "0"}, "at least 0.001 seconds"),
        ({"target": "mail", "for_seconds": "nan"}, "is no length of time"),
        ({"target": ""}, "Target: This field is required"),
        ({"target": "mail", "object_id": "7"}, "Only a strike"),
    ],
)
def test_what_makes_no_sense_is_said_and_not_done(
    log_in: Any, desk: Desk, given: dict[str, str], said: str
) -> None:
    client = log_in("view", "operate")

    told = client.post(GIVE, {"kind": "pause", **given, **YES})
    assert (told.status_code, said in told.content.decode()) == (400, True)
    assert client.post(GIVE, {"kind": "end", "target": "mail", **YES}).status_code == 400
    assert desk.orders.all() == []

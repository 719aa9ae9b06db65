"""Acts on many dead letters in the admin: asked first, done in steps, each letter once."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest
import redis
from celery import Celery

from celery_reliable.operations import Desk
from celery_reliable.operations.dead_letters import DeadLetters
from tests.contrib.shown import ACT, EDIT, LIST, REPLAY, page

#: Imported when Django is set up.
ACTING = "celery_reliable.contrib.django.desk.acting"
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
def one_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{ACTING}._STEP_SECONDS", 0.0)


@pytest.fixture
def some(put: Callable[..., None]) -> None:
    for number in range(3):
        put(f"bill-{number}")
    put("mail", "KeyError: x", name="shop.mail")


@pytest.mark.usefixtures("some")
def test_the_question_says_how_many(log_in: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    client = log_in("view", "change")
    group = re.findall(r'data-group="(\w+)"', page(client.get(f"{LIST}groups/")))[0]

    for given, count in (
        ({"all": "on"}, "4"),
        ({"task": "shop.bill"}, "3"),
        ({"group": group}, "3"),
    ):
        shown = page(client.post(REPLAY, given))
        assert total(shown) == (count, "yes"), given
    assert "Replay 0 dead letters?" in page(client.post(REPLAY, {"text": "x", "group": group}))
    monkeypatch.setattr(f"{ACTING}._COUNT_SECONDS", 0.0)
    shown = page(client.post(REPLAY, {"task": "shop.*"}))
    counted, is_exact = total(shown)
    assert (int(counted) < 4, is_exact) == (True, "no")
    assert f"Replay at least {counted} dead letter" in shown
    assert client.post(REPLAY, {"older_than_seconds": "x"}).status_code == 400


@pytest.mark.usefixtures("some", "one_a_step")
def test_all_that_fit_are_done_once_step_by_step(
    put: Callable[..., None], log_in: Any, letters: DeadLetters, shared_redis: redis.Redis
) -> None:
    client = log_in("view", "change")
    given = asked(client, REPLAY, task="shop.bill", rate="1000")
    before = shared_redis.llen("celery")
    # It comes after the question.
    put("bill-late")

    first = page(client.post(REPLAY, given))
    assert letters.count() == 4
    # The same portion again, as by somebody who pressed twice, does no letter twice.
    client.post(REPLAY, given)
    assert letters.count() == 3
    # Whoever only looks does nothing.
    shown = page(client.get(address(first)))
    assert letters.count() == 3
    done = 0
    while 'data-over="yes"' not in shown:
        shown = page(client.post(REPLAY, fields(shown)))
        (counted,) = re.findall(r'id="run-done">(\d+)<', shown)
        assert done < int(counted) < 5
        done = int(counted)

    assert {one.task_id for one in letters.list()} == {"mail", "bill-late"}
    assert shared_redis.llen("celery") - before == 3


def address(shown: str) -> str:
    """Where the act goes on."""
    (found,) = re.findall(r'data-address="([^"]+)"', shown)
    return unescape(found)


@pytest.mark.usefixtures("some")
def test_a_limit_and_a_queue_are_kept_to(
    log_in: Any, letters: DeadLetters, namespace: str, shared_redis: redis.Redis
) -> None:
    client = log_in("view", "change")
    queue = f"spare-{namespace}"
    given = {**asked(client, REPLAY), "limit": "2", "to_queue": queue, "rate": "1000"}

    shown = page(client.post(REPLAY, given))

    assert 'data-over="yes"' in shown
    assert letters.count() == 2
    assert shared_redis.llen(queue) == 2
    for name, value in (("limit", "x"), ("rate", "0"), ("rate", "nan"), ("before", "-1")):
        refused = client.post(REPLAY, {**given, name: value})
        assert refused.status_code == 400, name
    assert client.post(REPLAY, {**given, "cursor": "x", "limit": ""}).status_code == 400
    assert letters.count() == 2
    shared_redis.delete(queue)


@pytest.mark.usefixtures("some", "one_a_step")
def test_what_was_cut_off_is_found_again(log_in: Any, letters: DeadLetters) -> None:
    """In the audit: by whoever has the permission."""
    client = log_in("view", "change")
    client.post(REPLAY, {**asked(client, REPLAY, task="shop.bill"), "rate": "50"})
    other = log_in("view", "change")

    notes = page(other.get(f"{LIST}audit/"))
    shown = page(other.get(unescape(re.findall(rf'<a href="({REPLAY}[^"]+)"', notes)[0])))

    assert "django:user-0" in notes
    assert 'name="task" value="shop.bill"' in shown
    assert fields(shown)["rate"] == "50.0"
    while 'data-over="yes"' not in shown:
        shown = page(other.post(REPLAY, fields(shown)))
    assert {one.task_id for one in letters.list()} == {"mail"}


#: The permissions that an act needs, all of them.
NEEDED = {
    "replay_dead_letters": {"change"},
    "discard_dead_letters": {"delete"},
    "replay_dead_letter_edited": {"change", "see_arguments"},
    "revoke_tasks": {"operate"},
    "move_tasks": {"operate"},
    "give_order": {"operate"},
    "resume": {"operate"},
    "sweep": {"operate"},
}
GIVEN = {
    "ids": "bill-0",
    "id": "bill-0",
    "args": "[]",
    "kwargs": "{}",
    "workers": "x",
    "kind": "pause",
    "target": "mail",
    "orders": "mail",
    "confirmed": "yes",
}


@pytest.mark.usefixtures("some", "bill")
def test_each_act_needs_its_permissions_and_a_token(
    log_in: Any, letters: DeadLetters, celery_project: Celery
) -> None:
    from celery_reliable.contrib.django.desk.visits import ACT_PAGES

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
    shown = [page(root.get(f"{LIST}{one}")) for one in ("", "tasks/", "orders/", "desk/")]
    assert all("/act/" in one for one in shown)
    viewer = log_in("view")
    shown = [page(viewer.get(f"{LIST}{one}")) for one in ("", "tasks/", "orders/", "desk/")]
    assert not any("/act/" in one for one in shown)
    with Desk(celery_project) as desk:
        assert (letters.count(), desk.orders.all(), desk.audit()) == (4, [], [])


@pytest.mark.usefixtures("some", "bill")
def test_a_letter_runs_with_other_arguments_as_a_new_task(
    log_in: Any, letters: DeadLetters, celery_project: Celery
) -> None:
    client = log_in("view", "change", "see_arguments")
    address, one = EDIT, {"id": "bill-0", "confirmed": "yes"}

    assert "secret-1" in page(client.get(address, {"id": "bill-0"}))
    for args in ("no JSON", "{}", "secret-3", "[" * 100_000):
        refused = client.post(address, {**one, "args": args, "kwargs": "{}"})
        assert refused.status_code == 400
    assert letters.count() == 4
    done = client.post(address, {**one, "args": '["other"]', "kwargs": '{"pin": 1}'})

    assert letters.count() == 3
    told = page(client.get(done["Location"]))
    (new_id,) = re.findall(r'Published as <a href="[^"]*tasks/task/([^/]+)/"', told)
    with Desk(celery_project) as desk:
        found = desk.tasks.get(new_id.replace("_2D", "-"), arguments=True)
        assert (found.args, found.kwargs) == (["other"], {"pin": 1})
        assert desk.audit()[0].act == "replay edited"
        assert "other" not in str(desk.audit())
    assert client.post(address, {**one, "args": "[]", "kwargs": "{}"}).status_code == 400
    # A task that this process does not know.
    unknown = client.post(address, {**one, "id": "mail", "args": "[]", "kwargs": "{}"})
    assert unknown.status_code == 400
    assert "not known to this app" in unknown.content.decode()


def test_arguments_that_json_would_change_are_not_edited(
    put: Callable[..., None], log_in: Any, letters: DeadLetters
) -> None:
    """A date would come back as a text."""
    date = b'{"__type__": "datetime", "__value__": "2026-11-22T10:00:00"}'
    put("dated", body=b"[[" + date + b"], {}, {}]")
    put("broken", body=b"no JSON")
    client = log_in(is_superuser=True)

    for task_id in ("dated", "broken"):
        shown = page(client.get(EDIT, {"id": task_id}))
        assert 'id="desk-problem"' in shown
        assert "<textarea" not in shown
        posted = client.post(
            EDIT, {"id": task_id, "args": "[]", "kwargs": "{}", "confirmed": "yes"}
        )
        assert posted.status_code == 400
    assert letters.count() == 2

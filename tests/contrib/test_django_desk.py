"""The other pages of the desk: what waits, runs, holds and was done."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from celery import Celery
from django.test import Client
from django.test.utils import override_settings

from celery_reliable import ReliableTask
from celery_reliable.app import reliable_of
from celery_reliable.contrib.django.admin import PAGES
from celery_reliable.operations import Desk, OrderKind
from tests.contrib.shown import DESK, DISCARD, LIST, REPLAY, page

#: By the name of a page: an address of it, and what is needed, as a superuser has it.
ADDRESSES = {
    "letters": "",
    "overview": "desk/",
    "groups": "groups/",
    "tasks": "tasks/",
    "task": "tasks/task/one/",
    "fleet_runs": "runs/",
    "fleet_run": "runs/run/abc/",
    "objects": "objects/",
    "find_object": "objects/find/",
    "object": "objects/object/abc/",
    "workers": "workers/",
    "orders": "orders/",
    "audit": "audit/",
}
#: That are posted.
ACTS = {"find_object"}
#: What else a page answers than 200, or 302: there is no such run.
STATUSES = {"fleet_run": 404}


@pytest.fixture
def publish(celery_project: Celery) -> Callable[..., str]:
    """Publish a task of this name; with an `eta` it is parked."""

    def publish(name: str = "shop.bill", **options: Any) -> str:
        def run(*args: object, **kwargs: object) -> None:
            """Nobody runs it."""

        if name not in celery_project.tasks:
            celery_project.task(base=ReliableTask, name=name, shared=False)(run)
        task = celery_project.tasks[name]
        return str(task.apply_async(("secret-1",), {"pin": "secret-2"}, **options).id)

    return publish


def pages() -> dict[str, Any]:
    """Return the pages, when Django is set up."""
    return {one.name: one for one in PAGES}


def test_there_is_an_address_for_each_page() -> None:
    # These have tests of their own.
    assert set(pages()) == {*ADDRESSES, "act"}


@pytest.mark.parametrize("name", sorted(ADDRESSES))
def test_each_page_asks_for_its_permission(
    name: str, put: Callable[..., None], log_in: Any, celery_project: Celery
) -> None:
    put("one")
    one = pages()[name]
    address = f"{LIST}{ADDRESSES[name]}"
    others = {"delete", "operate", "see_arguments"}

    def ask(client: Any) -> Any:
        return client.post(address) if "POST" in one.methods else client.get(address)

    assert "/admin/login/" in ask(Client())["Location"]
    assert ask(log_in(*others)).status_code == 403
    answered = ask(log_in("view")).status_code
    assert answered == STATUSES[name] if name in STATUSES else answered in (200, 302)
    # Nothing is done by a GET, and nothing else by another method.
    other = log_in(is_superuser=True)
    refused = other.get(address) if "POST" in one.methods else other.post(address)
    assert refused.status_code == 405
    if "POST" in one.methods:
        assert log_in(is_superuser=True, csrf=True).post(address).status_code == 403


def test_a_ledger_that_is_away_is_told_on_each_page(
    log_in: Any, celery_project: Celery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("celery_reliable.contrib.django.project._PATIENCE_SECONDS", 0.1)
    client = log_in(is_superuser=True)
    with override_settings(CELERY_RELIABLE={"REDIS_URL": "redis://:s3cret@127.0.0.1:1/0"}):
        for name in sorted(set(ADDRESSES) - ACTS):
            told = page(client.get(f"{LIST}{ADDRESSES[name]}"))
            assert "127.0.0.1:1" in told
            assert "s3cret" not in told
            assert 'id="desk-problem"' in told


def test_a_broker_that_is_away_is_told(
    publish: Callable[..., str],
    log_in: Any,
    redis_address: str,
    namespace: str,
    celery_project: Celery,
) -> None:
    task_id = publish()
    settings = {"REDIS_URL": f"redis://{redis_address}/0", "NAMESPACE": namespace}
    client = log_in("view")
    with override_settings(CELERY_RELIABLE=settings):
        app = Celery("away", broker="amqp://u:s3cret@127.0.0.1:1//")
        app.conf.broker_connection_timeout = 0.2
        told = page(client.get(f"{LIST}desk/"))
        of_task = page(client.get(f"{LIST}tasks/task/{task_id}/"))
        app.close()

    assert "s3cret" not in told + of_task
    assert "broker_away" in told
    assert "The broker could not be reached" in of_task
    celery_project.set_current()


def test_the_desk_shows_what_waits_and_what_is_wrong(
    publish: Callable[..., str], put: Callable[..., None], log_in: Any
) -> None:
    publish()
    publish(countdown=3600)
    put("one")
    client = log_in("view")

    shown = page(client.get(f"{LIST}desk/"))

    counts = dict(re.findall(r'<div data-state="(\w+)" data-count="(\d+)"', shown))
    assert counts == {"queued": "1", "waiting": "1", "dead": "1"}
    assert 'data-finding="no_worker"' in shown
    assert 'data-queue="celery"' in shown
    assert shown.count("data-group=") == 1
    # From the menu of the admin, too.
    assert f'href="{DESK}"' in page(client.get("/admin/"))
    assert "desk-states" in page(client.get(DESK))
    assert log_in().get(DESK).status_code == 403


def test_tasks_are_listed_by_state_and_filter(publish: Callable[..., str], log_in: Any) -> None:
    queued, parked = publish(), publish("shop.mail", countdown=3600)
    client = log_in("view")

    def found(query: str) -> set[str]:
        return set(re.findall(r'data-task="([^"]+)"', page(client.get(f"{LIST}tasks/{query}"))))

    assert found("") == {queued, parked}
    assert found("?state=queued") == {queued}
    assert found("?state=waiting") == {parked}
    assert found("?state=running") == set()
    assert found("?task=shop.m*") == {parked}
    assert found("?queue=nowhere") == set()
    assert client.get(f"{LIST}tasks/?state=x").status_code == 400
    assert client.get(f"{LIST}tasks/?cursor=x").status_code == 400
    assert client.get(f"{LIST}objects/?cursor=x").status_code == 400


def test_a_task_is_shown_with_why_it_waits_and_without_arguments(
    publish: Callable[..., str], log_in: Any
) -> None:
    task_id = publish(countdown=3600)
    address = f"{LIST}tasks/task/{task_id}/"
    client, sees = log_in("view"), log_in("view", "see_arguments")

    shown = page(client.get(address))
    assert 'id="desk-why" data-kind="eta"' in shown
    assert "secret" not in shown
    assert "Show the arguments" not in shown
    assert client.get(address, {"arguments": "yes"}).status_code == 403
    assert "secret" not in page(sees.get(address))
    assert "secret-1" in page(sees.get(address, {"arguments": "yes"}))
    assert client.get(f"{LIST}tasks/", {"id": task_id})["Location"] == address


def test_a_dead_and_an_ended_task_are_shown_with_what_happened(
    put: Callable[..., None], log_in: Any
) -> None:
    put("one")
    client = log_in("view", "change", "delete")

    dead = page(client.get(f"{LIST}tasks/task/one/"))
    assert "&lt;i&gt;here&lt;/i&gt;" in dead
    assert "desk-to-group" in dead
    page(client.post(DISCARD, {"ids": "one", "confirmed": "yes"}, follow=True))

    ended = page(client.get(f"{LIST}tasks/task/one/"))
    assert "django:user-0" in ended
    assert 'data-state="ended"' in ended
    assert "desk-to-group" not in ended


def test_an_object_is_found_by_its_id_and_shown_with_its_line(
    log_in: Any, celery_project: Celery, desk: Desk
) -> None:
    @celery_project.task(
        name="shop.flood",
        base=ReliableTask,
        shared=False,
        object_id="tenant",
        at_most=2,
        on_conflict="wait",
        place="queued",
    )
    def flood(tenant: str) -> None: ...

    client = log_in("view")
    assert "No task has an object" in page(client.get(f"{LIST}objects/"))
    find = f"{LIST}objects/find/"
    assert "Which object of" in page(client.post(find, {"task": "x"}, follow=True))
    # Its id is in no address.
    found = client.post(find, {"task": "shop.flood", "object_id": "large"})["Location"]
    assert "large" not in found
    assert "Nobody has it" in page(client.get(found))

    ids = [flood.delay("large").id for _ in range(5)]
    flood.delay("small")
    # Who has ended is not in line, though nobody has struck it off.
    desk.revocations.revoke([ids[3]], by="me")

    table = page(client.get(f"{LIST}objects/"))
    assert table.count("data-object=") == 2
    assert 'data-label="Places">2 of 2</td>' in table
    shown = page(client.get(found))
    assert "2 of 2 places are taken" in shown
    assert 'id="desk-to-holder"' in page(client.get(f"{LIST}tasks/task/{ids[4]}/"))
    assert shown.index(ids[0]) < shown.index(ids[1]) < shown.index(ids[2]) < shown.index(ids[4])
    assert ids[3] not in shown
    assert "Held back by object: 2 of shop.flood." in page(client.get(f"{LIST}desk/"))


def test_a_run_has_a_page_with_its_members(log_in: Any, bill: Any, desk: Desk) -> None:
    bill.app.conf.worker_direct = True
    facts = {"nodename": "gpu-1@h", "direct": "gpu-1@h.dq2"}
    desk.ledger.workers.register("w1", lease_ms=60_000, client_id=0, facts=facts)
    found = bill.run_on(2)
    client = log_in("view")
    (has, waits) = sorted(found.results, key=lambda one: one.id)

    assert found.id in page(client.get(f"{LIST}runs/"))
    shown = page(client.get(f"{LIST}runs/run/{found.id}/"))

    assert 'data-missing="1"' in shown
    assert "gpu-1@h" in shown
    assert "waits for one" in shown
    assert has.id in shown
    assert f"runs/run/{found.id}/" in page(client.get(f"{LIST}tasks/task/{waits.id}/"))
    nobody = client.get(f"{LIST}runs/run/nobody/")
    assert nobody.status_code == 404
    assert "There is no such run" in nobody.content.decode()


def test_workers_are_shown(log_in: Any, celery_project: Celery, desk: Desk) -> None:
    client = log_in("view")
    assert "No worker has a lease" in page(client.get(f"{LIST}workers/"))
    reliable_of(celery_project).ledger.workers.register(
        "w@<b>host</b>/1",
        lease_ms=60_000,
        client_id=1,
        facts={"pid": 17, "pool": "prefork", "unacked": "unacked:w"},
    )
    desk.orders.give(OrderKind.DRAIN, "w", by="ann")
    desk.orders.give(OrderKind.PAUSE, "celery", by="ann")
    overview = page(client.get(f"{LIST}desk/"))
    assert re.search(r'data-queue="celery">.*?paused', overview)

    shown = page(client.get(f"{LIST}workers/"))

    assert "alive, drained" in shown

    assert 'data-worker="w@&lt;b&gt;host&lt;/b&gt;/1" data-state="alive"' in shown
    assert "prefork, pid 17" in shown
    assert "1 alive" in page(client.get(f"{LIST}desk/"))


def test_numbers_in_attributes_are_numbers_in_every_language(
    put: Callable[..., None], log_in: Any
) -> None:
    put("one")
    client = log_in(is_superuser=True)
    given = {"all": "on", "limit": "5678", "rate": "0.5"}

    with override_settings(LANGUAGE_CODE="de", USE_THOUSAND_SEPARATOR=True):
        shown = page(client.get(REPLAY, given))

    assert 'name="limit" value="5678"' in shown
    assert 'name="rate" value="0.5"' in shown

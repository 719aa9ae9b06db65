"""Dead letters in the admin: who sees them, how they are found, and shown whatever they hold."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest
import redis
from celery import Celery
from django.contrib.admin.models import LogEntry

from celery_reliable.app import reliable_of
from celery_reliable.model import Reason
from celery_reliable.operations import Desk, OrderKind
from celery_reliable.operations.dead_letters import DeadLetters
from tests.contrib.shown import DISCARD, LIST, REPLAY, listed, page
from tests.contrib.test_django_desk import ADDRESSES

#: By a query: which of the letters below fit.
FILTERS = [
    ("task=shop.*", {"bill", "mail"}),
    ("task=bank.pay", {"pay"}),
    ("queue=fast", {"mail"}),
    ("reason=rejected", {"pay"}),
    ("exception=Key*", {"mail"}),
    ("newer_than_seconds=1h", {"bill", "mail", "pay"}),
    ("older_than_seconds=1h", set()),
    ("task=shop.*&exception=ValueError", {"bill"}),
]


@pytest.fixture
def some(put: Callable[..., None]) -> None:
    put("bill", "ValueError: x")
    put("mail", "KeyError: no such", name="shop.mail", queue="fast")
    put("pay", "", name="bank.pay", reason=Reason.REJECTED)


def test_letters_are_found_by_filters(some: None, log_in: Any) -> None:
    client = log_in("view")

    for query, fitting in FILTERS:
        assert set(listed(page(client.get(f"{LIST}?{query}")))) == fitting, query


def test_what_is_no_filter_is_said_and_finds_nothing(some: None, log_in: Any) -> None:
    client = log_in("view")

    for query, said in (
        ("older_than_seconds=soon", "is no length of time"),
        ("reason=x", "Reason: Select a valid choice"),
    ):
        answer = client.get(f"{LIST}?{query}")
        assert answer.status_code == 400
        assert said in answer.content.decode()
        assert listed(answer.content.decode()) == []


def test_groups_lead_to_their_letters(some: None, put: Callable[..., None], log_in: Any) -> None:
    put("bill-2", "ValueError: another")
    client = log_in("view")

    groups = page(client.get(f"{LIST}groups/"))

    assert groups.count("data-group=") == 3
    assert "3 groups of 4 dead letters" in groups
    largest = groups.split('data-group="')[1].split('"')[0]
    assert set(listed(page(client.get(f"{LIST}?group={largest}")))) == {"bill", "bill-2"}
    assert set(listed(page(client.get(f"{LIST}?group={largest}&older_than_seconds=1h")))) == set()
    assert page(client.get(f"{LIST}groups/?reason=rejected")).count("data-group=") == 1
    assert client.get(f"{LIST}?group=abcd").status_code == 404


HOSTILE = {
    "html": "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>",
    "control": "a\x00b\x1b[2J\x07c\r\nd",
    "direction": "safe\u202etxt.exe\u2066",
    "half": "half \udcff of one",
    "template": "{{ request }}{% debug %}",
    "megabyte": "x" * 1_000_000,
}


@pytest.mark.parametrize("kind", sorted(HOSTILE))
def test_hostile_values_are_only_text(
    kind: str, put: Callable[..., None], log_in: Any, celery_project: Celery, desk: Desk
) -> None:
    value = HOSTILE[kind]
    put("one", exception=f"Error: {value}", name=value, queue=value, traceback=value)
    # An id is part of an address, and in JSON; one of a megabyte has none.
    name = value[:200]
    put(name, exception="", name="shop.bill")
    facts = {"nodename": name, "queues": [name]}
    workers = reliable_of(celery_project).ledger.workers
    workers.register("w" + name.replace("\udcff", ""), lease_ms=60_000, client_id=0, facts=facts)
    desk.orders.give(OrderKind.PAUSE, name, by=name, why=name, later=True)
    client = log_in("view")

    shown = [client.get(f"{LIST}{one}").content.decode() for one in sorted(ADDRESSES.values())]
    links = [
        unescape(one)
        for one in re.findall(r'<th [^>]*class="desk-long"><a href="([^"]+)"', shown[0])
    ]
    shown += [page(client.get(one)) for one in links]

    assert len(links) == 2
    for one in shown:
        assert len(one) < 500_000
        assert "<script>alert" not in one
        assert "<img" not in one
        assert not set(one) & set("\x00\x1b\x07\u202e\u2066\udcff")
    # Whatever its id is, it can be chosen.
    client = log_in("view", "delete")
    chosen = re.findall(r'name="ids" value="([^"]+)"', page(client.get(LIST)))
    asked = page(client.post(DISCARD, {"ids": chosen}))
    chosen = re.findall(r'name="ids" value="([^"]+)"', asked)
    done = client.post(DISCARD, {"ids": chosen, "confirmed": "yes"}, follow=True)
    assert "2 dead letters discarded." in page(done)


# -- who may see them, and who may do what


def test_replay_asks_first_and_is_written_to_the_log(
    put: Callable[..., None],
    log_in: Any,
    letters: DeadLetters,
    celery_project: Celery,
    shared_redis: redis.Redis,
) -> None:
    put("one")
    put("two")
    client = log_in("view", "change")
    chosen = {"ids": ["one", "two"]}

    asked = page(client.post(REPLAY, chosen))

    # A slow machine counts no more of them in the time that there is.
    assert re.search(r"Replay (2|at least \d) dead letters?\?", asked)
    assert letters.count() == 2
    told = page(client.post(REPLAY, {**chosen, "confirmed": "Yes"}, follow=True))
    assert "2 dead letters replayed." in told
    assert "There are no dead letters." in told
    ledger = reliable_of(celery_project).ledger
    assert [one.got["state"] for one in ledger.find_each(["one", "two"])] == ["queued"] * 2
    assert shared_redis.llen("celery") == 2
    logged = LogEntry.objects.get(object_id="one, two")
    assert logged.change_message.startswith("Replay dead letters: ")
    assert "2 dead letters replayed." in logged.change_message
    assert page(client.get("/admin/"))


def test_letters_that_are_gone_are_said_to_be(put: Callable[..., None], log_in: Any) -> None:
    client = log_in(is_superuser=True)
    chosen = {"ids": "gone", "confirmed": "Yes"}

    assert client.get(f"{LIST}tasks/task/gone/").status_code == 404
    assert "Gone already: 1" in page(client.get(REPLAY, {"ids": "gone"}))
    assert "Gone already: 1" in page(client.post(REPLAY, chosen, follow=True))
    nothing = client.post(REPLAY, {})
    assert (nothing.status_code, "Which dead letters?" in nothing.content.decode()) == (400, True)


def test_a_long_list_has_pages(put: Callable[..., None], log_in: Any) -> None:
    for number in range(51):
        put(f"letter-{number}")
    client = log_in("view")

    first = page(client.get(LIST))
    older = re.search(r'<a href="\?([^"]+)" id="desk-next">', first)
    assert older is not None
    # What comes meanwhile moves nothing.
    put("newer")
    second = page(client.get(f"{LIST}?{unescape(older[1])}"))

    assert first.count('data-letter="') == 50
    assert second.count('data-letter="') == 1
    assert not set(listed(first)) & set(listed(second))
    assert 'id="desk-next"' not in second
    assert client.get(LIST, {"cursor": "x"}).status_code == 400

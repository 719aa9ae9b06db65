"""Dead letters in Django's admin: who may see them, and who may do what."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from typing import Any

import redis
from celery import Celery

from celery_reliable.app import reliable_of
from celery_reliable.model import State
from celery_reliable.operations.dead_letters import DeadLetters
from tests.contrib.shown import LIST, REPLAY, listed, page


def test_the_list_and_a_letter_are_shown_without_arguments(
    put: Callable[..., None], log_in: Any
) -> None:
    put("one")
    put("a/b c")
    client = log_in("view")

    listed = page(client.get(LIST))

    assert "2 dead letters" in listed
    assert "shop.bill" in listed
    assert "ValueError: &lt;b&gt;no&lt;/b&gt;" in listed
    assert "Replay" not in listed
    assert "Discard" not in listed
    links = re.findall(r'<th [^>]*class="desk-long"><a href="([^"]+)"', listed)
    assert len(links) == 2
    for link in links:
        shown = page(client.get(link))
        assert "&lt;i&gt;here&lt;/i&gt;" in shown
        assert "secret" not in shown
        assert "Show the arguments" not in shown
        assert client.get(link, {"arguments": "yes"}).status_code == 403


def test_replay_asks_first_and_is_written_to_the_log(
    put: Callable[..., None],
    log_in: Any,
    letters: DeadLetters,
    celery_project: Celery,
    shared_redis: redis.Redis,
) -> None:
    from django.contrib.admin.models import LogEntry

    put("one")
    put("two")
    client = log_in("view", "change")
    chosen = {"ids": ["one", "two"]}

    asked = page(client.post(REPLAY, chosen))

    assert "Replay 2 dead letters?" in asked
    assert letters.count() == 2
    told = page(client.post(REPLAY, {**chosen, "confirmed": "Yes"}, follow=True))
    assert "2 dead letters replayed." in told
    assert "There are no dead letters." in told
    records = reliable_of(celery_project).ledger.find_all(["one", "two"])
    assert [record and record.state for record in records] == [State.QUEUED] * 2
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

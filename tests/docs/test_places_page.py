"""The guide to places: its tasks wait, and its commands tell who has the places."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any
from unittest.mock import MagicMock

import pytest
from celery import Celery

from celery_reliable.app import reliable_of
from tests.docs.blocks import Page
from tests.docs.commands import run
from tests.support.redis_server import RedisServer
from tests.support.telling import lines

PAGES = ("guides/places.rst",)
GUIDE = Page(*PAGES)


@pytest.fixture
def declared(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Celery]:
    """An app with all tasks of the page, whose work nobody does."""
    monkeypatch.setitem(sys.modules, "shop", MagicMock())
    monkeypatch.setitem(sys.modules, "shop.work", MagicMock())
    found: dict[str, Any] = {"__name__": "shop.tasks"}
    app = Celery("shop", broker=redis_server.url(), backend=redis_server.url(1))
    for block in GUIDE.of("python"):
        exec(block.text, found)
    app.finalize()
    yield app
    reliable_of(app).close()
    app.close()


def told(command: str, app: Celery, **known: str) -> str:
    ran = run(command, app, known=known)
    assert ran.exit_code == 0, (command, ran.output)
    return " ".join(ran.output.split())


def test_its_commands_tell_who_has_the_places_and_who_waits(declared: Celery) -> None:
    convert = declared.tasks["shop.tasks.convert_document"]
    ids = [convert.delay("large", number).id for number in range(7)]
    listed, one, whole, shown, status = GUIDE.commands("Who has it, and who waits")

    assert "4 of 4 places taken" in told(listed, declared)
    assert "1 object," in told(listed, declared)
    answer = told(one, declared)
    assert [answer.index(task_id) for task_id in ids] == sorted(map(answer.index, ids))
    assert answer.partition("waiters: ")[2].count(",") == 2
    assert "0 of 2 places taken" in told(whole, declared)
    assert "with 2 before it" in told(shown, declared, ID=ids[6])
    assert "3 by object (3 shop.tasks.convert_document)" in told(status, declared)
    refused = run(one.rpartition(" --id")[0], declared)
    assert (refused.exit_code, "Give its id" in " ".join(refused.output.split())) == (2, True)
    assert "object_held" in lines()


def test_every_block_is_run() -> None:
    GUIDE.of("python")
    GUIDE.commands("Who has it, and who waits")
    assert GUIDE.left() == []

"""A body that runs its sender's code when it is unpickled: no door of the package opens it.

The project accepts pickle here, so that nothing but the package itself keeps it closed.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from celery_reliable import ReliableTask
from celery_reliable.app import reliable_of
from celery_reliable.contrib.django.api import OPERATIONS
from celery_reliable.operations import DeadLetters
from celery_reliable.recovery.sweeper import Sweeper
from tests.contrib.shown import LIST, REPLAY
from tests.contrib.test_django_desk import ADDRESSES, STATUSES, pages
from tests.integration.commands import invoke

PICKLE = "application/x-python-serialize"


class Canary:
    """Leaves a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    return tmp_path / "canary"


@pytest.fixture
def body(canary: Path) -> bytes:
    return pickle.dumps(((Canary(canary),), {}, {}))


@pytest.fixture(autouse=True)
def project(celery_project: Celery, put: Callable[..., None], body: bytes) -> Celery:
    """A dead letter with such a body, of a task with an object."""
    celery_project.conf.accept_content = ["json", "pickle"]

    @celery_project.task(base=ReliableTask, name="shop.bill", object_id=str, shared=False)
    def bill(*args: object, **kwargs: object) -> None: ...

    celery_project.finalize()
    put("one", body=body, kind=(PICKLE, "binary"))
    return celery_project


@pytest.fixture(autouse=True)
def stays_closed(project: Celery, canary: Path, body: bytes) -> Any:
    """What must hold after each of these tests; and the canary would sing."""
    yield
    assert not canary.exists()
    pickle.loads(body)
    assert canary.exists()


def test_no_page_of_the_admin_opens_it(log_in: Callable[..., Any]) -> None:
    client = log_in(is_superuser=True)
    for name, address in ADDRESSES.items():
        ask = client.post if "POST" in pages()[name].methods else client.get
        expected = (STATUSES[name],) if name in STATUSES else (200, 302)
        assert ask(f"{LIST}{address}").status_code in expected, address
    assert client.get(f"{REPLAY}?all=on").status_code == 200
    posted = client.post(REPLAY, {"ids": "one", "confirmed": "yes"})
    assert posted.status_code in (200, 302, 400)
    assert client.get(f"{LIST}tasks/task/one/").status_code == 200


def test_no_answer_of_the_api_opens_it(log_in: Callable[..., Any]) -> None:
    client = log_in(is_superuser=True)
    told = {
        "task": {"id": "one", "arguments": "true"},
        "run": {"id": "one"},
        "object": {"key": "x"},
    }
    for one in (one for one in OPERATIONS if not one.is_act):
        given = told.get(one.path, {})
        answer = client.get(f"/reliable/v1/{one.path}", given)
        assert answer.status_code in (200, 404), (one.path, answer.content)
    body = {"ids": ["one"]}
    client.post("/reliable/v1/dead-letters/replay", body, content_type="application/json")


def test_no_command_opens_it(project: Celery) -> None:
    run = partial(invoke, project)
    for words in (
        "status --json",
        "tasks",
        "dead-letters list --json",
        "dead-letters groups",
        "show one --with-arguments --json",
        "objects",
        "sweep",
    ):
        ran = run(*words.split())
        assert ran.exit_code == 0, (words, ran.output, ran.exception)
    assert run("dead-letters", "replay", "one").exit_code == 0


def test_no_pass_and_no_replay_opens_it(project: Celery) -> None:
    letters = DeadLetters(project)
    letters.replay("one")
    ledger = reliable_of(project).ledger
    with ledger.ask("client", lambda client: client.pipeline()) as pipe:
        pipe.delete("celery").zadd(ledger.keys.due, {"one": 0}).execute()
    sweeper = Sweeper(project)
    report, _ = sweeper.run_if_due()
    assert report is not None
    assert report.looked_at == 1
    (raw,) = ledger.ask("queue", lambda client: client.lrange("celery", 0, -1))
    assert json.loads(raw)["content-type"] == PICKLE

"""`docs/guides/named-workers.rst` and `run-on.rst`: tasks wait for those that they name, and the
commands move them.  The workers themselves are those of `tests/integration/test_named_workers.py`.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from celery import Celery

from celery_reliable.app import reliable_of
from celery_reliable.operations.desk import Desk
from tests.docs.blocks import Page
from tests.docs.commands import run
from tests.support.redis_server import RedisServer

PAGES = ("guides/named-workers.rst", "guides/run-on.rst")


@pytest.fixture
def published(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The app of the page, and the ids of what its calls published."""
    page = Page(PAGES[0])
    names: dict[str, Any] = {"__name__": "proj"}
    defined = page.block("prefer_workers=", "python").text
    exec(defined.replace("redis://127.0.0.1:6379/0", redis_server.url()), names)
    app: Celery = names["app"]
    calls = page.block("apply_async", "python").text.strip().splitlines()
    found = [eval(call, names).id for call in calls]
    found.append(names["thumbnail"].delay("picture").id)
    yield page, app, found
    assert page.left() == []
    reliable_of(app).close()
    app.close()


def test_the_calls_wait_for_those_that_they_name_and_the_commands_name_others(
    published: Any,
) -> None:
    page, app, (first, second, elsewhere) = published
    status, show, dry, move, anywhere = page.commands("What waits, and moving it")

    with Desk(app) as desk:
        assert desk.sweep("me").ran
    said = " ".join(run(status, app).output.split())
    assert "2 waiting for workers: " in said
    assert "1 for alpha@host (alive: none)" in said
    assert "1 for gpu-1, gpu-2 (alive: none)" in said
    shown = run(show, app, known={"ID": first})
    assert "'alpha@host'" in shown.output
    assert run(show, app, known={"ID": second}).output.count("gpu-1") > 0
    said = " ".join(run(show, app, known={"ID": elsewhere}).output.split())
    assert "It waits in the queue 'celery'" in said
    assert 'prefer workers ["gpu-*"]' in said
    assert "call" not in said
    with Desk(app) as desk:
        assert run(dry, app, known={"ID": first}).exit_code == 0
        assert desk.tasks.get(first).only_workers == ("alpha@host",)
        assert run(move, app, known={"ID": first}).exit_code == 0
        assert desk.tasks.get(first).only_workers == ("gpu-*",)
        assert run(anywhere, app, known={"ID": first}).exit_code == 0
        assert desk.tasks.get(first).only_workers == ()


def test_runs_say_what_is_missing(redis_server: RedisServer) -> None:
    page = Page(PAGES[1])
    names: dict[str, Any] = {"__name__": "proj"}
    url = redis_server.url()
    exec(
        page.block("def load_model", "python").text.replace("redis://127.0.0.1:6379/0", url), names
    )
    app: Celery = names["app"]
    app.conf.result_backend = None
    living = reliable_of(app).ledger.workers
    for number in (1, 2):
        facts = {"nodename": f"gpu-{number}@h", "direct": f"gpu-{number}@h.dq2"}
        living.register(f"w{number}", lease_ms=60_000, client_id=0, facts=facts)

    calls = page.block("run_on(3, args", "python").text.strip().splitlines()
    three, everywhere, gpus, named = [eval(call, names) for call in calls]

    assert [len(one.results) for one in (three, everywhere, gpus, named)] == [3, 2, 2, 3]
    listed, shown, as_json = page.commands("How a run stands")
    said = " ".join(run(listed, app).output.split())
    assert "4 runs" in said
    assert all(one.id in said for one in (three, everywhere, gpus, named))
    with Desk(app) as desk:
        assert desk.tasks.get(three.results[0].id).run == three.id
    said = " ".join(run(shown, app, known={"RUN": three.id}).output.split())
    assert "1 wait for a worker" in said
    found = json.loads(run(as_json, app, known={"RUN": everywhere.id}).output)
    assert (found["missing"], found["states"]) == (0, {"queued": 2})
    assert {one["worker"] for one in found["members"]} == {"gpu-1@h", "gpu-2@h"}
    assert page.left() == []
    reliable_of(app).close()
    app.close()

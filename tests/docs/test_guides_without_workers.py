"""The pages whose calls and commands a Redis answers alone; the workers that obey are those of
`tests/integration`, and what a failover does is shown by `tests/promises/limits`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import yaml
from celery import Celery
from prometheus_client import generate_latest

from celery_reliable import ReliableTask
from celery_reliable.app import reliable_of
from celery_reliable.operations import Desk, registry_of
from celery_reliable.orders import OrderKind
from celery_reliable.results import results_server_of
from tests.conftest import StartRedis
from tests.docs.blocks import Page, run
from tests.integration.conftest import Project
from tests.support.promql import labels_in, result_labels
from tests.support.redis_server import RedisServer
from tests.support.sentinel import Sentinel, start_replica
from tests.support.telling import lines

PAGES = (
    "guides/named-workers.rst",
    "guides/places.rst",
    "guides/run-on.rst",
    "guides/stop-button.rst",
    "recipes/autoscaling.rst",
    "recipes/sentinel.rst",
)


@pytest.fixture
def page(request: pytest.FixtureRequest) -> Iterator[Page]:
    """A page, all of whose blocks its test asks for."""
    found = Page(request.param)
    yield found
    assert found.left() == []


def of(name: str) -> pytest.MarkDecorator:
    assert name in PAGES
    return pytest.mark.parametrize("page", [name], indirect=True)


@pytest.fixture
def names(page: Page, redis_server: RedisServer) -> Iterator[dict[str, Any]]:
    """What the page's block with its `app` declares, on this test's Redis."""
    found: dict[str, Any] = {"__name__": "proj"}
    source = page.block("app = Celery(", "python").text
    exec(source.replace("redis://127.0.0.1:6379/0", redis_server.url()), found)
    yield found
    reliable_of(found["app"]).close()
    found["app"].close()


def told(command: str, app: Celery, code: int = 0, **known: str) -> str:
    """What a command of the page says, in one line."""
    ran = run(command, app, known=known)
    assert ran.exit_code == code, (command, ran.output)
    return " ".join(ran.output.split())


@of("guides/named-workers.rst")
def test_calls_wait_for_the_workers_that_they_name(page: Page, names: dict[str, Any]) -> None:
    app = names["app"]
    calls = page.block("apply_async", "python").text.strip().splitlines()
    first, second = [eval(call, names).id for call in calls]
    elsewhere = names["thumbnail"].delay("picture").id
    status, show, revoke = page.commands("What waits")

    with Desk(app) as desk:
        assert desk.sweep("me").ran
    said = told(status, app)
    assert "2 waiting for workers: " in said
    assert "1 for alpha@host (alive: none)" in said
    assert "1 for gpu-1, gpu-2 (alive: none)" in said
    assert "'alpha@host'" in told(show, app, ID=first)
    assert "gpu-1" in told(show, app, ID=second)
    said = told(show, app, ID=elsewhere)
    assert "It waits in the queue 'celery'" in said
    assert 'prefer workers ["gpu-*"]' in said
    assert "call" not in said
    told(revoke, app, ID=first)
    with Desk(app) as desk:
        assert desk.tasks.get(first).outcome == "REVOKED"


@of("guides/run-on.rst")
def test_runs_say_what_is_missing(page: Page, names: dict[str, Any]) -> None:
    app = names["app"]
    app.conf.result_backend = None
    for number in (1, 2):
        facts = {"nodename": f"gpu-{number}@h", "direct": f"gpu-{number}@h.dq2"}
        reliable_of(app).ledger.workers.register(
            f"w{number}", lease_ms=60_000, client_id=0, facts=facts
        )

    calls = page.block("run_on(3, args", "python").text.strip().splitlines()
    runs = three, everywhere, *_ = [eval(call, names) for call in calls]

    assert [len(one.results) for one in runs] == [3, 2, 2, 3]
    listed, shown, as_json = page.commands("How a run stands")
    said = told(listed, app)
    assert "4 runs" in said
    assert all(one.id in said for one in runs)
    with Desk(app) as desk:
        assert desk.tasks.get(three.results[0].id).run == three.id
    said = told(shown, app, RUN=three.id)
    assert "1 wait for a worker" in said
    found = json.loads(told(as_json, app, RUN=everywhere.id))
    assert (found["missing"], found["states"]) == (0, {"queued": 2})
    assert {one["worker"] for one in found["members"]} == {"gpu-1@h", "gpu-2@h"}


@of("guides/places.rst")
def test_commands_tell_who_has_the_places_and_who_waits(
    page: Page, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody does the work.
    for name in ("shop", "shop.work"):
        monkeypatch.setitem(sys.modules, name, MagicMock())
    names: dict[str, Any] = {"__name__": "shop.tasks"}
    app = Celery("shop", broker=redis_server.url(), backend=redis_server.url(1))
    for block in page.of("python"):
        exec(block.text, names)
    app.finalize()
    convert = app.tasks["shop.tasks.convert_document"]
    ids = [convert.delay("large", number).id for number in range(7)]
    listed, one, whole, shown, status = page.commands("Who has it, and who waits")

    assert "4 of 4 places taken" in told(listed, app)
    assert "1 object," in told(listed, app)
    answer = told(one, app)
    assert [answer.index(task_id) for task_id in ids] == sorted(map(answer.index, ids))
    assert answer.partition("waiters: ")[2].count(",") == 2
    assert "0 of 2 places taken" in told(whole, app)
    assert "with 2 before it" in told(shown, app, ID=ids[6])
    assert "3 by object (3 shop.tasks.convert_document)" in told(status, app)
    assert "Give its id" in told(one.rpartition(" --object-id")[0], app, code=2)
    assert "object_held" in lines()
    reliable_of(app).close()
    app.close()


@of("guides/stop-button.rst")
def test_commands_stop_and_resume(page: Page, project: Project) -> None:
    app = project.app

    @app.task(name="proj.mail", base=ReliableTask, shared=False)
    def mail() -> None:
        """Struck."""

    @app.task(name="proj.charge", base=ReliableTask, object_id="contract", shared=False)
    def charge(contract: int) -> None:
        """Of which one object is struck."""

    app.amqp.queues.add("invoices")
    reliable_of(app).ledger.workers.register(
        "celery@old-1/0", lease_ms=600_000, client_id=0, facts={}
    )

    # Those of the sections below come behind.
    for command in page.commands("The stop button")[:4]:
        told(command, app)
    with Desk(app) as desk:
        views = desk.orders.all()
    assert [(one.kind, one.target, one.object_id) for one in views] == [
        (OrderKind.STRIKE, "proj.mail", None),
        (OrderKind.STRIKE, "proj.charge", "4711"),
        (OrderKind.PAUSE, "invoices", None),
        (OrderKind.DRAIN, "celery@old-*", None),
    ]
    until, given_at = views[2].until, views[2].given_at
    assert until is not None
    assert given_at is not None
    assert (until - given_at).total_seconds() == 900

    task_id = project.send("work", 0, queue="invoices").id
    for command in page.commands("Who stopped it, and going on"):
        said = told(command, app, ID=task_id)
        assert "invoices is paused" in said or " show " not in command
        assert "mails twice" in said or not command.endswith("orders")
    with Desk(app) as desk:
        assert [one.target for one in desk.orders.all()] == ["proj.charge", "celery@old-*"]

    for command in page.commands("One task that runs"):
        told(command, app, ID=project.send("work", 0, countdown=3600).id)


@of("recipes/autoscaling.rst")
def test_metrics_are_those_of_a_scrape(page: Page, project: Project) -> None:
    project.send("work", 0)
    with Desk(project.app) as desk:
        workers, name = desk.ledger.workers, "one@here/ab.0"
        workers.register(name, lease_ms=60_000, client_id=0, facts={})
        doing = json.dumps({"queues": ["celery"], "slots": 4, "running": 2, "turned": 0})
        workers.heartbeat(name, lease_ms=60_000, client_id=0, doing=doing)
    known = labels_in(generate_latest(registry_of(project.app)).decode())
    scaled, pod_scaler = (yaml.safe_load(block.text) for block in page.of("yaml"))
    spec, pods = scaled["spec"], pod_scaler["spec"]

    (trigger,) = spec["triggers"]
    # One number, whatever there is.
    assert result_labels(trigger["metadata"]["query"], known) == set()
    (metric,) = pods["metrics"]
    assert metric["external"]["metric"]["name"] in known
    assert set(re.findall(r"``(reliable_\w+)", page.text)) <= known.keys()
    (command,) = page.commands()
    status = json.loads(told(command, project.app))
    # One waits, two run, for four slots.
    assert (status["slots"], status["saturation"]) == (4, 0.75)
    # Both leave somebody who recovers.
    assert (scaled["kind"], pod_scaler["kind"]) == ("ScaledObject", "HorizontalPodAutoscaler")
    assert min(spec["minReplicaCount"], pods["minReplicas"]) >= 2
    assert spec["scaleTargetRef"]["name"] == pods["scaleTargetRef"]["name"] == "worker"


def work() -> None:
    """What nobody runs here."""


@of("recipes/sentinel.rst")
def test_broker_ledger_and_results_are_behind_the_same_sentinels(
    page: Page, tmp_path: Path, redis_server: RedisServer, start_redis: StartRedis
) -> None:
    start_replica(redis_server, start_redis)
    with Sentinel(tmp_path, redis_server) as sentinel:
        source = page.block("sentinels =", "python").text
        for name, host in (("1", "127.0.0.1"), ("2", "localhost"), ("3", "127.0.0.1")):
            source = source.replace(f"sentinel-{name}:26379", f"{host}:{sentinel.port}")
        app = Celery("proj", set_as_current=False)
        exec(source.replace("mymaster", sentinel.name), {"app": app})
        task = app.task(name="proj.work", base=ReliableTask, shared=False)(work)

        sent = task.delay()

        reliable = reliable_of(app)
        with redis_server.client() as client:
            assert client.llen("celery") == 1
            assert client.exists("{reliable:0}:task:" + sent.id)
        assert reliable.queues_at
        assert reliable.is_delivered_from_ledger
        assert results_server_of(app.backend) == reliable.connector().server
        reliable.close()
        app.close()

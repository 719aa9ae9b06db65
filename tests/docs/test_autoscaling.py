"""`docs/recipes/autoscaling.rst`: its expressions and metrics are those of a scrape."""

from __future__ import annotations

import json
import re

import yaml
from prometheus_client import generate_latest

from celery_reliable.operations import Desk, registry_of
from tests.docs.blocks import Page
from tests.docs.commands import run
from tests.integration.conftest import Project
from tests.support.promql import labels_in, result_labels

PAGES = ("recipes/autoscaling.rst",)
PAGE = Page(*PAGES)
SCALED, POD_SCALER = (yaml.safe_load(block.text) for block in PAGE.of("yaml"))
(COMMAND,) = PAGE.commands()


def test_its_metrics_are_those_of_a_scrape(project: Project) -> None:
    project.send("work", 0)
    with Desk(project.app) as desk:
        workers, name = desk.ledger.workers, "one@here/ab.0"
        workers.register(name, lease_ms=60_000, client_id=0, facts={})
        doing = json.dumps({"queues": ["celery"], "slots": 4, "running": 2, "turned": 0})
        workers.heartbeat(name, lease_ms=60_000, client_id=0, doing=doing)
    known = labels_in(generate_latest(registry_of(project.app)).decode())

    (trigger,) = SCALED["spec"]["triggers"]
    # One number, whatever there is.
    assert result_labels(trigger["metadata"]["query"], known) == set()
    (metric,) = POD_SCALER["spec"]["metrics"]
    assert metric["external"]["metric"]["name"] in known
    assert set(re.findall(r"``(reliable_\w+)", PAGE.text)) <= known.keys()

    status = json.loads(run(COMMAND, project.app).output)
    # One waits, two run, for four slots.
    assert (status["slots"], status["saturation"]) == (4, 0.75)


def test_both_leave_somebody_who_recovers() -> None:
    spec, pods = SCALED["spec"], POD_SCALER["spec"]
    assert (SCALED["kind"], POD_SCALER["kind"]) == ("ScaledObject", "HorizontalPodAutoscaler")
    assert min(spec["minReplicaCount"], pods["minReplicas"]) >= 2
    assert spec["scaleTargetRef"]["name"] == pods["scaleTargetRef"]["name"] == "worker"

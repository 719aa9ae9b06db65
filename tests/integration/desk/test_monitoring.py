"""What the documentation gives to Kubernetes, Prometheus and Grafana: it is compared with what is
there.
"""

from __future__ import annotations

import json
import os
import re
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace

import prometheus_client
import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest

import celery_reliable_probe as probe
from celery_reliable.findings import RUNNING, SERVER
from celery_reliable.operations import Desk, metrics, registry_of
from celery_reliable.worker.health import Signs
from tests.integration.conftest import Project
from tests.integration.desk.monitored import BOARD, RULES
from tests.integration.letters import put
from tests.support.processes import REPOSITORY
from tests.support.promql import labels_in, result_labels

DOCS = REPOSITORY / "docs"
PAGES = ("monitoring.rst",)
PAGE = (DOCS / "monitoring.rst").read_text("utf-8")


@pytest.fixture
def known(project: Project) -> dict[str, set[str]]:
    """The metrics of a scrape in which there is something of everything, and their labels."""
    project.redis.client().config_set("maxmemory", 2**30)
    project.send("work", 0)
    put(project, "one")
    with Desk(project.app) as desk:
        nonce = "ab"
        desk.ledger.passes.begin(
            nonce, interval_ms=0, ttl_ms=1_000, interruption_ms=60_000, lease_ms=4_000
        )
        desk.ledger.passes.end(nonce, {})
        desk.ledger.workers.register("one@here/ab.0", lease_ms=60_000, client_id=0, facts={})
        # It stands, which is found.
        doing = json.dumps({"queues": ["celery"], "slots": 2, "running": 0, "turned": 3600})
        desk.ledger.workers.heartbeat("one@here/ab.0", lease_ms=60_000, client_id=0, doing=doing)
    scraped = generate_latest(registry_of(project.app)).decode()
    # What processes count; the metrics of a real worker are compared with these elsewhere.
    own = CollectorRegistry()
    counts = metrics._Counts(project.app, prometheus_client, own)
    for one in counts.metrics.values():
        one.labels(*("any" for _ in one._labelnames))
    # Nothing is held back: no sample of that.
    rare = {"reliable_held_back": {"kind", "task"}}
    return rare | labels_in(scraped) | labels_in(generate_latest(own).decode())


def test_the_alerts_name_what_there_is(known: dict[str, set[str]]) -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule.keys() == {"alert", "expr", "for", "labels", "annotations"}
        labels = result_labels(rule["expr"], known)
        assert "absent" in rule["expr"] or "job" in labels, rule["alert"]
        assert re.fullmatch(r"\d+m", rule["for"])
        assert rule["labels"]["severity"] in ("critical", "warning")


def test_the_panels_name_what_there_is(known: dict[str, set[str]]) -> None:
    targets = [one for panel in BOARD["panels"] for one in panel.get("targets", ())]
    assert len(targets) > 15
    for target in targets:
        labels = result_labels(target["expr"], known)
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= labels, target
    # And all there is has a panel.
    shown = {name for target in targets for name in re.findall(r"reliable_\w+", target["expr"])}
    plain = {name.removesuffix("_bucket") for name in shown}
    histograms = {name.removesuffix("_bucket") for name in known if name.endswith("_bucket")}
    others = {name for name in known if not any(name.startswith(one) for one in histograms)}
    assert {name for name in others if not name.endswith("_created")} | histograms <= plain


def test_there_is_an_alert_for_each_finding() -> None:
    told = re.findall(r'code="(\w+)", name="(\w+)"', str([r["expr"] for r in RULES]))
    assert sorted(told) == sorted((one.code, one.name) for one in RUNNING)
    # Those of the server are one, as they are in the documentation.
    (of_server,) = (rule for rule in RULES if "name=~" in rule["expr"])
    pattern = re.search(r'name=~"(.+?)"', of_server["expr"])
    assert pattern is not None
    assert all(re.fullmatch(pattern[1], one.name) for one in SERVER)


def test_each_alert_says_what_to_do_and_where_to_read() -> None:
    for rule in RULES:
        notes = rule["annotations"]
        assert notes.keys() == {"summary", "description", "action", "runbook"}
        assert all(len(text) > 10 for text in notes.values()), notes


def test_the_dashboard_is_one() -> None:
    panels = BOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert {"title", "uid", "schemaVersion", "templating", "time", "panels"} <= BOARD.keys()
    variables = {one["name"]: one for one in BOARD["templating"]["list"]}
    assert variables.keys() == {"datasource", "job"}
    assert (variables["datasource"]["type"], variables["datasource"]["query"]) == (
        "datasource",
        "prometheus",
    )
    for panel in panels:
        place = panel["gridPos"]
        assert place.keys() == {"x", "y", "w", "h"}
        assert place["x"] + place["w"] <= 24
        if panel["type"] == "row":
            continue
        assert panel["title"]
        assert panel["description"]
        assert len({one["refId"] for one in panel["targets"]}) == len(panel["targets"])
        for one in (panel, *panel["targets"]):
            assert one["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    for one, other in combinations((panel["gridPos"] for panel in panels), 2):
        is_beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        is_above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert is_beside or is_above, (one, other)


def test_the_settings_of_prometheus() -> None:
    (block,) = re.findall(r"code-block:: yaml\n\n((?:    .*\n|\n)+)", PAGE)
    given = yaml.safe_load(block)
    assert [Path(one).name for one in given["rule_files"]] == ["alerts.yml"]
    assert given["scrape_configs"][0]["static_configs"][0]["targets"] == ["127.0.0.1:9809"]


def test_the_probes_of_the_page(tmp_path: Path) -> None:
    text = (DOCS / "operations-status.rst").read_text("utf-8")
    (block,) = re.findall(r"code-block:: yaml\n\n((?:    .*\n|\n)+)", text)
    (container,) = yaml.safe_load(block)["containers"]
    probes = [one for key, one in container.items() if key.endswith("Probe")]
    assert len(probes) == 3
    commands = [" ".join(one["exec"]["command"]) for one in probes]
    commands += re.findall(
        r"^    (celery-reliable-probe .*?)(?: --worker one@host)?$", text, re.MULTILINE
    )
    assert len(commands) == 5
    well = SimpleNamespace(why_not_alive=str, why_not_ready=str)
    # As a worker of this process.
    Signs(str(tmp_path), nodename="one@here", pid=os.getpid(), lease_seconds=10, told=well)
    for command in commands:
        program, *arguments = command.replace("/run/celery", str(tmp_path)).split()
        assert program == "celery-reliable-probe"
        assert probe.main(arguments) == 0, command

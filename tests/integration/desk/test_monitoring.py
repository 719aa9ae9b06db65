"""What the documentation gives to Kubernetes, Prometheus and Grafana: it is compared with what is
there.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import SimpleNamespace

import yaml

import celery_reliable_probe as probe
from celery_reliable.findings import RUNNING, SERVER
from celery_reliable.worker.health import Signs
from tests.integration.desk.monitored import BOARD, RULES
from tests.support.processes import REPOSITORY

DOCS = REPOSITORY / "docs"
PAGES = ("monitoring.rst",)
PAGE = (DOCS / "monitoring.rst").read_text("utf-8")


def test_there_is_an_alert_for_each_finding() -> None:
    told = re.findall(r'code="(\w+)", name="(\w+)"', str([r["expr"] for r in RULES]))
    assert sorted(told) == sorted((one.code, one.name) for one in RUNNING)
    # Those of the server are one, as they are in the documentation.
    (of_server,) = (rule for rule in RULES if "name=~" in rule["expr"])
    pattern = re.search(r'name=~"(.+?)"', of_server["expr"])
    assert pattern is not None
    assert all(re.fullmatch(pattern[1], one.name) for one in SERVER)


def test_each_alert_says_what_to_do_and_where_to_read() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule.keys() == {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"\d+m", rule["for"])
        assert rule["labels"]["severity"] in ("critical", "warning")
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
        if panel["type"] == "row":
            continue
        assert panel["title"]
        assert panel["description"]
        for one in (panel, *panel["targets"]):
            assert one["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


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

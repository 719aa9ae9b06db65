"""What the documentation gives to Kubernetes, Prometheus and Grafana: it is compared with what is
there.  Probes of real workers, that stand, die, end, and are cut off.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

import celery_reliable_probe as probe
from celery_reliable import ReliableConfig
from celery_reliable.findings import RUNNING, SERVER
from celery_reliable.worker.health import Health
from celery_reliable_probe import problems
from tests.integration.conftest import SOON, Project
from tests.support.processes import REPOSITORY
from tests.support.waiting import wait_for

DOCS = REPOSITORY / "docs"
FOLDER = DOCS / "monitoring"
BOARD: dict[str, Any] = json.loads((FOLDER / "grafana-dashboard.json").read_text("utf-8"))
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((FOLDER / "alerts.yml").read_text("utf-8"))["groups"]
    for rule in group["rules"]
]
TARGETS = [one for panel in BOARD["panels"] for one in panel.get("targets", ())]
PAGES = ("monitoring.rst",)
PAGE = (DOCS / "monitoring.rst").read_text("utf-8")


def names(expressions: list[dict[str, Any]]) -> set[str]:
    """Every metric that rules or targets name."""
    return {name for one in expressions for name in re.findall(r"\breliable_\w+", one["expr"])}


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
    # As a worker of this process, which is well.
    process = SimpleNamespace(nodename="one@here", pid=os.getpid())
    config = ReliableConfig(probe_directory=str(tmp_path))
    health: Any = Health(SimpleNamespace(reliable=SimpleNamespace(config=config), process=process))
    health.why_not_alive = health.why_not_ready = str
    health.begin()
    for command in commands:
        program, *arguments = command.replace("/run/celery", str(tmp_path)).split()
        assert program == "celery-reliable-probe"
        assert probe.main(arguments) == 0, command


#: What a worker said longer ago counts no more.  It says it once a second.
STALE_SECONDS = 6.0


def test_who_lives_and_who_takes_work(project: Project, tmp_path: Path) -> None:
    folder = tmp_path / "probes"
    probed = project.with_settings(reliable={**SOON, "PROBE_DIRECTORY": str(folder)})
    workers = probed.start_workers("one", "two")
    names = {path.name.partition("@")[0]: path.name.partition(".")[0] for path in folder.iterdir()}

    def why(kind: str, *workers: str) -> list[str]:
        return problems(kind, str(folder), [names[one] for one in workers], STALE_SECONDS)

    def soon(is_so: Callable[[], bool], what: str) -> None:
        wait_for(is_so, 20, what)

    assert {one.partition("@")[0] for one in names.values()} == {"one", "two"}
    soon(lambda: not why("readyz", "one", "two"), "both are ready")
    assert why("livez") == []

    # One of two stands.
    workers["two"].signal_main(signal.SIGSTOP)
    soon(lambda: len(why("livez", "two")) == 1, "it is not alive")
    assert why("livez", "one") == []
    assert len(why("livez")) == 1
    workers["two"].signal_main(signal.SIGCONT)
    soon(lambda: not why("livez"), "it is alive again")

    # One of two is killed, and leaves its file.
    workers["two"].kill_group()
    assert "no process" in why("livez", "two")[0]
    assert why("livez") == []

    # The server is away for a moment.
    project.redis.stop()
    soon(lambda: bool(why("readyz")), "it is not ready")
    assert why("livez") == []
    project.redis.start()
    soon(lambda: not why("readyz"), "it is ready again")

    # An operator lets it consume nothing.
    def tell(command: str) -> None:
        probed.app.control.broadcast(command, arguments={"queue": "celery"})

    tell("cancel_consumer")
    soon(lambda: bool(why("readyz")), "it is not ready")
    assert why("livez") == []
    tell("add_consumer")
    soon(lambda: not why("readyz"), "it is ready again")

    # It ends, and finishes what it runs.
    probed.begin("gate", "door")
    workers["one"].signal_main(signal.SIGTERM)
    soon(lambda: bool(why("readyz")), "it takes nothing any more")
    assert why("livez") == []
    project.effects.open_gate("door")
    assert workers["one"].wait_until_ended() == 0
    assert "no process" in why("livez")[0]
    # What the killed one left.
    assert [path.name.partition("@")[0] for path in folder.glob("*.json")] == ["two"]

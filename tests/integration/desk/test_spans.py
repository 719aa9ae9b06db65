"""Spans of a real worker whose tasks are lost and buried, as OpenTelemetry exports them."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path
from typing import Any

from tests.integration.conftest import SOON, Project
from tests.support.processes import REPOSITORY, run_python
from tests.support.waiting import wait_for

TRACED = "tests.integration.project.traced"

Span = dict[str, Any]


def test_losses_and_burials_are_spans_of_the_tasks_trace(project: Project, tmp_path: Path) -> None:
    path = tmp_path / "spans"
    path.touch()
    hasty = project.with_settings(reliable={**SOON, "MAX_LOSSES": 1})

    def spans(name: str) -> list[Span]:
        # The last line may be half written.
        whole = path.read_text().rpartition("\n")[0]
        rows = [json.loads(row) for row in whole.splitlines()]
        return [row for row in rows if row["name"] == name]

    def start(name: str) -> Any:
        return hasty.start_worker(name, app=TRACED, environ={"SPANS": str(path)})

    worker = start("one")
    # What a worker publishes has a span that the task's own belong to.
    for task in ("poison_times", "poison", "failing"):
        hasty.send("call", task, [1] if task == "poison_times" else []).get(timeout=20)
    wait_for(lambda: spans("run/project.poison_times"), 20, "it has run again")
    wait_for(lambda: spans("buried/project.poison"), 20, "it is buried")
    wait_for(lambda: spans("buried/project.failing"), 20, "so is what fails")
    # Of a whole worker's death too, whose publisher has no span.
    held = hasty.send("gate", "door")
    project.effects.run_of(held.id)
    worker.kill_group()
    start("two")
    wait_for(lambda: len(project.effects.runs(held.id)) == 2, 30, "it runs again")
    project.effects.open_gate("door")
    wait_for(lambda: spans("run/project.gate"), 20, "it ends")

    for name, cause in (("poison_times", "SIGKILL"), ("gate", "worker_lost")):
        (lost,) = spans(f"lost/project.{name}")
        (run,) = spans(f"run/project.{name}")
        assert lost["status"]["status_code"] == "ERROR"
        assert cause in lost["attributes"]["celery_reliable.cause"]
        assert lost["attributes"]["celery_reliable.attempt"] == 1
        assert lost["start_time"] <= lost["end_time"] <= run["end_time"]
        assert run["status"]["status_code"] != "ERROR"
    (published,) = spans("apply_async/project.poison_times")
    (lost,) = spans("lost/project.poison_times")
    (run,) = spans("run/project.poison_times")
    assert lost["parent_id"] == run["parent_id"] == published["context"]["span_id"]

    # Each loss has an id of its own.
    losses = spans("lost/project.poison")
    assert len({one["context"]["span_id"] for one in losses}) == 2
    for name, reason in (("poison", "lost"), ("failing", "failed")):
        (buried,) = spans(f"buried/project.{name}")
        assert buried["attributes"]["celery_reliable.reason"] == reason
        (published,) = spans(f"apply_async/project.{name}")
        assert buried["parent_id"] == published["context"]["span_id"]
    # Passes have no span.
    kinds = {json.loads(row)["name"].partition("/")[0] for row in path.read_text().splitlines()}
    assert kinds == {"apply_async", "run", "lost", "buried"}


def test_the_block_of_the_page() -> None:
    page = (REPOSITORY / "docs" / "monitoring.rst").read_text("utf-8")
    (block,) = re.findall(r"code-block:: python\n\n((?:    .*\n|\n)+)", page)
    # It connects receivers for as long as its process lives.
    code = textwrap.dedent(block)
    run_python("-c", code)


def test_without_the_packages_it_says_what_to_install() -> None:
    code = (
        "import sys\n"
        "sys.modules['opentelemetry'] = None\n"
        "import celery_reliable\n"
        "try:\n"
        "    import celery_reliable.contrib.opentelemetry\n"
        "except celery_reliable.ConfigurationError as exc:\n"
        "    assert 'celery-reliable[otel]' in str(exc)\n"
        "else:\n"
        "    raise AssertionError\n"
    )
    run_python("-c", code)

"""What Prometheus scrapes and OpenTelemetry exports, of real workers and a real server."""

from __future__ import annotations

import json
import re
import subprocess
import textwrap
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.integration.commands import start_reliable
from tests.integration.conftest import SOON, Project
from tests.integration.desk.test_monitoring import RULES, TARGETS, names
from tests.support.processes import REPOSITORY, run_python
from tests.support.promql import labels_in, result_labels
from tests.support.waiting import wait_for

#: Metrics of what does not happen to the worker here, or is not asked for, and their labels.
RARE = {
    "reliable_task_fenced_total": {"task"},
    "reliable_held_back": {"kind", "task"},
    "reliable_dead_letter_replayed_total": {"task"},
    "reliable_worker_declared_dead_total": {"cause"},
}

#: A sample's name and its labels, as Prometheus writes them -> its value.
Samples = dict[str, float]


@dataclass
class Exporter:
    """`reliable metrics` on a free port."""

    url: str

    def text(self) -> str:
        with urllib.request.urlopen(self.url, timeout=20) as answer:
            return str(answer.read().decode())

    def scrape(self) -> Samples:
        found = {}
        for family in text_string_to_metric_families(self.text()):
            for sample in family.samples:
                labels = ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items()))
                found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
        return found


@contextmanager
def serving(project: Project, folder: Path) -> Iterator[Exporter]:
    words = ("metrics", "--port", "0")
    process = start_reliable(project, folder, *words, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().removeprefix("Serving metrics on ").strip()
        assert url.startswith("http://127.0.0.1:")
        yield Exporter(url)
    finally:
        process.kill()
        process.communicate()


def test_a_real_worker_is_scraped(soon: Project, tmp_path: Path) -> None:
    worker = soon.start_worker("one")
    published = soon.send("call", "work", [0])
    lost = soon.send("poison_times", 1)
    buried = soon.send("failing")
    holder = soon.begin("locked_gate", "contract 7", "door")
    skipped = soon.send("locked_gate", "contract 7", "door")
    for one in (published, lost, skipped):
        one.get(timeout=30)
    wait_for(lambda: buried.ready(), 20, "it failed")
    soon.send("work", 0, countdown=3600)
    soon.send("work", 0, queue="slow")

    with serving(soon, tmp_path) as exporter:
        found: Samples = {}

        def has_all() -> bool:
            found.update(exporter.scrape())
            # Workers tell of their slots with a beat.
            return found.get("reliable_slots") == 2

        wait_for(has_all, 20, "the worker has told of its slots")

        assert found["reliable_task_lost_total{cause=child_lost,task=project.poison_times}"] == 1
        assert found["reliable_task_recovered_total{task=project.poison_times}"] == 1
        assert found["reliable_task_buried_total{reason=failed,task=project.failing}"] == 1
        assert found["reliable_task_skipped_total{task=project.locked_gate}"] == 1
        assert found["reliable_up"] == 1
        assert found["reliable_tasks{state=running}"] == 1
        assert found["reliable_tasks{state=waiting}"] == 1
        assert found["reliable_tasks{state=queued}"] == 1
        assert found["reliable_tasks{state=dead}"] == 1
        assert found["reliable_dead_letters{reason=failed}"] == 1
        assert found["reliable_workers{state=alive}"] == 1
        assert found["reliable_queue_depth{queue=slow}"] == 1
        assert found["reliable_queue_depth{queue=celery}"] == 0
        assert found["reliable_sweeper_silence_seconds"] < 10
        assert found["reliable_slots"] == 2
        # One runs, and one waits where nobody takes it, for two slots.
        assert found["reliable_saturation"] == 1

        known = labels_in(exporter.text())
        worker.freeze()
        wait_for(
            lambda: exporter.scrape().get(
                "reliable_finding{code=E015,name=sweeper_silent,severity=error}"
            ),
            30,
            "a sweeper that is silent",
        )
        assert exporter.scrape()["reliable_workers{state=lapsed}"] == 1

        # What the dashboard and the alerts name is there, but for what has not happened.
        known |= labels_in(exporter.text())
        assert names([*RULES, *TARGETS]) - known.keys() == RARE.keys()
        for rule in RULES:
            labels = result_labels(rule["expr"], known | RARE)
            assert "absent" in rule["expr"] or "job" in labels, rule["alert"]
        for target in TARGETS:
            labels = result_labels(target["expr"], known | RARE)
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= labels, target
        # And all there is has a panel.
        assert known.keys() <= {*names(TARGETS)}
        worker.thaw()
    soon.effects.open_gate("door")
    holder.get(timeout=30)


def test_a_ledger_that_is_away_is_not_up(project: Project, tmp_path: Path) -> None:
    with serving(project, tmp_path) as exporter:
        assert exporter.scrape()["reliable_up"] == 1
        project.redis.stop()

        found = exporter.scrape()

        assert {name: v for name, v in found.items() if name.startswith("reliable_")} == {
            "reliable_up": 0
        }
        project.redis.start()
        assert exporter.scrape()["reliable_up"] == 1


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
    held = hasty.begin("gate", "door")
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

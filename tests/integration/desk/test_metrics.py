"""What Prometheus scrapes, of real workers and a real server."""

from __future__ import annotations

import re
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.commands import start_reliable
from tests.integration.conftest import Project
from tests.integration.desk.monitored import RULES, TARGETS, names
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


class Exporter:
    """`reliable metrics` on a free port."""

    def __init__(self, url: str) -> None:
        self.url = url

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


@pytest.fixture
def serve(tmp_path: Path) -> Callable[..., object]:
    @contextmanager
    def serve(project: Project, **environ: str) -> Iterator[Exporter]:
        streams = {"stdout": subprocess.PIPE, "text": True}
        words = ("metrics", "--port", "0")
        process = start_reliable(project, tmp_path, *words, environ=environ, **streams)
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            url = line.removeprefix("Serving metrics on ").strip()
            assert url.startswith("http://127.0.0.1:")
            yield Exporter(url)
        finally:
            process.kill()
            process.communicate()

    return serve


def test_a_real_worker_is_scraped(soon: Project, serve: Callable[..., object]) -> None:
    worker = soon.start_worker("one")
    published = soon.send("call", "work", [0])
    lost = soon.send("poison_times", 1)
    buried = soon.send("failing")
    holder = soon.send("locked_gate", "contract 7", "door")
    soon.effects.run_of(holder.id)
    skipped = soon.send("locked_gate", "contract 7", "door")
    for one in (published, lost, skipped):
        one.get(timeout=30)
    wait_for(lambda: buried.ready(), 20, "it failed")
    soon.send("work", 0, countdown=3600)
    soon.send("work", 0, queue="slow")

    with serve(soon) as exporter:  # type: ignore[attr-defined]
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
        assert found["reliable_tasks{state=parked}"] == 1
        assert found["reliable_tasks{state=queued}"] == 1
        assert found["reliable_dead_letters"] == 1
        assert found["reliable_dead_letters_by_reason{reason=failed}"] == 1
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


def test_a_ledger_that_is_away_is_not_up(project: Project, serve: Callable[..., object]) -> None:
    with serve(project) as exporter:  # type: ignore[attr-defined]
        assert exporter.scrape()["reliable_up"] == 1
        project.redis.stop()

        found = exporter.scrape()

        assert {name: v for name, v in found.items() if name.startswith("reliable_")} == {
            "reliable_up": 0
        }
        project.redis.start()
        assert exporter.scrape()["reliable_up"] == 1

"""The README's first command, run as a reader runs it, and its picture."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.example.conftest import EXAMPLE, Marked
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full

DEMO = str(EXAMPLE / "demo.py")
PICTURE = EXAMPLE.parent / "docs" / "demo.svg"
DEMO_SECONDS = 180


@pytest.fixture
def usual_port() -> Iterator[socket.socket | None]:
    """Somebody who listens where Redis usually does; None when a real one does already."""
    with closing(socket.socket()) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", 6379))
        except OSError:
            yield None
            return
        listener.listen()
        listener.setblocking(False)
        yield listener


def words(text: str) -> set[str]:
    """The words of a text, but for the workers, of which either may be the one that is killed."""
    return set(re.findall(r"[a-z]{4,}", text)) - {"alpha", "beta"}


def shown(picture: Path) -> str:
    """What a picture tells."""
    return " ".join(ElementTree.parse(picture).getroot().itertext()).replace("\xa0", " ")


def run_demo(marked: Marked) -> dict:
    """Run the demo to its end and return its report."""
    report, picture = marked.folder / "report.json", marked.folder / "demo.svg"
    process = marked.start(DEMO, "--json", str(report), "--svg", str(picture))
    try:
        process.wait(timeout=DEMO_SECONDS)
    except subprocess.TimeoutExpired:
        pytest.fail(f"the demo did not end:\n{marked.said()}")
    assert process.returncode == 0, marked.said()
    told: dict = json.loads(report.read_text())
    promises = words(" ".join(check["name"] for check in told["checks"]))
    for one in (picture, PICTURE):
        assert promises <= words(shown(one)), one
        assert f"All {len(told['checks'])} promises were kept" in shown(one), one
    return told


def test_the_demo_keeps_its_promises_and_leaves_nothing(
    marked: Marked, usual_port: socket.socket | None
) -> None:
    report = run_demo(marked)

    assert report["ok"]
    poison = report["poison"]
    for document in report["documents"]:
        runs = [run for run in report["runs"] if run["document"] == document["pk"]]
        outcomes = [run["outcome"] for run in runs]
        if document["pk"] == poison:
            assert outcomes == ["killed itself"] * 4
            assert [letter["task_id"] for letter in report["dead_letters"]] == [document["task_id"]]
        else:
            assert document["status"] == "succeeded"
            assert outcomes.count("written") == 1
            assert runs[-1]["attempt"] == document["attempt"]
        ends = [run["ended"] for run in runs]
        for (first, end), (second, _) in pairwise(zip(runs, ends, strict=True)):
            assert end is None or end <= second["started"]
            assert second["attempt"] == first["attempt"] + 1
    kills = {rerun["kill"] for rerun in report["reruns"]}
    assert len(kills) == 2, kills
    assert len({run["worker"] for run in report["runs"]}) == 2

    assert marked.left_behind() == []
    assert list(marked.temporary.iterdir()) == []
    if usual_port is not None:
        with pytest.raises(BlockingIOError):
            usual_port.accept()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_demo_that_is_stopped_leaves_nothing(marked: Marked, number: signal.Signals) -> None:
    process = marked.start(DEMO)
    wait_for(lambda: "published" in marked.said(), 60, "documents to be published")

    process.send_signal(number)

    assert process.wait(timeout=30) == 128 + number, marked.said()
    assert marked.left_behind() == []
    assert list(marked.temporary.iterdir()) == []

"""The arena does its faults to real workers, and sees who loses by them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import REPOSITORY

pytestmark = pytest.mark.full


def test_a_killed_child_is_back_with_the_package_and_not_with_stock_celery(tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    chosen = ("--faults", "child", "--only", "celery-reliable", "celery")
    subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks.arena", *chosen),
            *("--bound", "8", "--rounds", "0", "--json", str(found)),
        ],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        cwd=tmp_path,
        check=True,
        timeout=150,
    )

    by_system = json.loads(found.read_text())["faults"]["child"]
    ours, stock = by_system["celery-reliable"], by_system["celery"]
    assert (ours["not_back"], ours["ended_twice"], ours["at_once"]) == (0, 0, 0)
    assert ours["seconds"] is not None
    assert (stock["not_back"], stock["seconds"]) == (1, None)

"""What the documentation gives to Kubernetes: it is run as it stands there."""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import SimpleNamespace

import yaml

import celery_reliable_probe as probe
from celery_reliable.worker.signs import Signs
from tests.support.processes import REPOSITORY

DOCS = REPOSITORY / "docs"


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

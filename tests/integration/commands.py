"""`celery -A … reliable …` as an operator runs it: a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from configparser import ConfigParser
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from tests.support.processes import REPOSITORY

COMMAND_SECONDS = 60.0

Run = Callable[..., "Ran"]


@dataclass(frozen=True)
class Ran:
    """What a command printed and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed, read as JSON."""
        return json.loads(self.out)


def entry_point_path(folder: Path) -> str:
    """Return a folder for PYTHONPATH in which Celery finds our command; "" when we are installed.

    A checkout that nobody installed has no metadata; this is as much of it as Celery asks for.
    """
    try:
        metadata.distribution("celery-reliable")
        return ""
    except metadata.PackageNotFoundError:
        pass
    declared = ConfigParser()
    declared.read(REPOSITORY / "setup.cfg")
    command = declared["options.entry_points"]["celery.commands"].strip()
    info = folder / "entry" / "celery_reliable-0.dist-info"
    if not info.exists():
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: celery-reliable\nVersion: 0\n")
        (info / "entry_points.txt").write_text(f"[celery.commands]\n{command}\n")
    return str(info.parent)


def run_celery(
    *arguments: str, app: str, environ: Mapping[str, str], folder: Path, answer: str = ""
) -> Ran:
    """Run `python -m celery -A APP ARGUMENTS` and return what came of it."""
    paths = [entry_point_path(folder), str(REPOSITORY), environ.get("PYTHONPATH", "")]
    ended = subprocess.run(
        [sys.executable, "-m", "celery", "-A", app, *arguments],
        cwd=folder,
        env={
            **environ,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "COLUMNS": "80",
        },
        input=answer,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )
    return Ran(ended.returncode, ended.stdout, ended.stderr)

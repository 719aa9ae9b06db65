"""`celery -A … reliable …` as an operator runs it: a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from types import SimpleNamespace
from typing import Any

from click.testing import CliRunner, Result

from celery_reliable.operations.cli import reliable
from tests.support.preloaded import REPOSITORY, can_be_forked, start_celery

APP = "tests.integration.project.app"
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


def invoke(app: Any, *arguments: str) -> Result:
    """Run a command in this process, with this app."""
    calling = SimpleNamespace(app=app, no_color=True)
    return CliRunner().invoke(reliable, arguments, obj=calling, env={"COLUMNS": "80"})


def start_reliable(
    project: Any,
    folder: Path,
    *words: str,
    environ: Mapping[str, str] | None = None,
    **streams: Any,
) -> subprocess.Popen[Any]:
    """Start a command in a process of its own, with a project's settings; the caller ends it."""
    return subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", APP, "reliable", *words],
        cwd=folder,
        env=project.environ("ready:none", {"PYTHONPATH": str(REPOSITORY), **(environ or {})}),
        **streams,
    )


def run_celery(
    *arguments: str, app: str, environ: Mapping[str, str], folder: Path, answer: str = ""
) -> Ran:
    """Run `python -m celery -A APP ARGUMENTS`, and return what came of it."""
    paths = [str(REPOSITORY), environ.get("PYTHONPATH", "")]
    env = {**environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "COLUMNS": "80"}
    command = ["-A", app, *arguments]
    with TemporaryFile("w+") as stdin, TemporaryFile("w+") as out, TemporaryFile("w+") as err:
        stdin.write(answer)
        stdin.seek(0)
        where: Any = {"cwd": folder, "env": env, "stdin": stdin, "stdout": out, "stderr": err}
        process: Any
        # Celery has loaded its commands by then.
        if can_be_forked(command, env):
            process = start_celery(command, **where)
        else:
            process = subprocess.Popen([sys.executable, "-m", "celery", *command], **where)
        try:
            code = process.wait(COMMAND_SECONDS)
        finally:
            process.kill()
        out.seek(0)
        err.seek(0)
        return Ran(code, out.read(), err.read())

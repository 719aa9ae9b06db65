"""`celery -A … reliable …` as an operator runs it: a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
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
    *arguments: str,
    app: str,
    environ: Mapping[str, str],
    folder: Path,
    answer: str = "",
    seconds: float = COMMAND_SECONDS,
) -> Ran:
    """Run `python -m celery -A APP ARGUMENTS`, for so long at most, and return what came of it."""
    paths = [str(REPOSITORY), environ.get("PYTHONPATH", "")]
    env = {**environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "COLUMNS": "80"}
    command = ["-A", app, *arguments]
    # Celery has loaded its commands by then.
    if not can_be_forked(command, env):
        return _run_anew(command, env, folder, answer, seconds)
    with TemporaryFile("w+") as stdin, TemporaryFile("w+") as out, TemporaryFile("w+") as err:
        stdin.write(answer)
        stdin.seek(0)
        process = start_celery(command, cwd=folder, env=env, stdin=stdin, stdout=out, stderr=err)
        try:
            code = process.wait(seconds)
        finally:
            process.kill()
        out.seek(0)
        err.seek(0)
        return Ran(code, out.read(), err.read())


def _run_anew(
    command: Sequence[str], env: Mapping[str, str], folder: Path, answer: str, seconds: float
) -> Ran:
    ended = subprocess.run(
        [sys.executable, "-m", "celery", *command],
        cwd=folder,
        env=env,
        input=answer,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    return Ran(ended.returncode, ended.stdout, ended.stderr)

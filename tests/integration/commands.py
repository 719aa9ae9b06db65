"""`celery -A … reliable …` as an operator runs it: a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from configparser import ConfigParser
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from tests.support.preloaded import REPOSITORY, can_be_forked, start_celery

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
    *arguments: str,
    app: str,
    environ: Mapping[str, str],
    folder: Path,
    answer: str = "",
    seconds: float = COMMAND_SECONDS,
) -> Ran:
    """Run `python -m celery -A APP ARGUMENTS`, for so long at most, and return what came of it."""
    path = entry_point_path(folder)
    paths = [path, str(REPOSITORY), environ.get("PYTHONPATH", "")]
    env = {**environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "COLUMNS": "80"}
    command = ["-A", app, *arguments]
    # Celery has loaded its commands by then.
    if path or not can_be_forked(command, env):
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

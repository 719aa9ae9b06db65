"""A Django project with Celery, as somebody has it: files, a shell, and workers."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.support.processes import REPOSITORY, CeleryProcess, Worker, run_python
from tests.support.waiting import wait_for

#: What every Django project with Celery has, by Celery's own guide; and its workers say when they
#: are ready.
PROJECT_FILES = {
    "proj/__init__.py": "from proj.celery import app as celery_app\n__all__ = ('celery_app',)\n",
    "proj/celery.py": """
        import os
        from celery import Celery
        from celery.signals import worker_ready
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "proj.settings")
        app = Celery("proj")
        app.config_from_object("django.conf:settings", namespace="CELERY")
        app.autodiscover_tasks()

        @worker_ready.connect
        def tell(sender, **_):
            open(f"{os.environ['FOLDER']}/{sender.hostname.partition('@')[0]}.ready", "w").close()
    """,
    # Stands for the user's work. It notes who does it, and waits for as long as it is held.
    "held.py": """
        import os, pathlib, signal, time

        FOLDER = pathlib.Path(os.environ["FOLDER"])

        def note(name, text=""):
            with open(FOLDER / f"{name}.noted", "a") as file:
                file.write(f"{os.getpid()} {text}\\n")

        def run(name, text=""):
            note(name, text)
            until = time.monotonic() + 600
            while (FOLDER / f"{name}.hold").exists() and time.monotonic() < until:
                time.sleep(0.02)
            if (FOLDER / f"{name}.poison").exists():
                os.kill(os.getpid(), signal.SIGKILL)
    """,
}
#: Settings of a project with one app and a file for a database; its `app` and the `name` of that
#: are to be filled in.
SETTINGS = """
    SECRET_KEY = "only for tests"
    USE_TZ = True
    INSTALLED_APPS = [{app!r}]
    DATABASES = {{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": {name!r},
                             "OPTIONS": {{"timeout": 20}}}}}}
    DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
"""
#: A shell and a terminal in one, as importing all of it takes seconds.
TERMINAL = """
    import contextlib, io, json, shlex, sys, traceback
    import django
    django.setup()
    from celery.bin.celery import celery
    from click.testing import CliRunner
    names = {}
    for line in sys.stdin:
        kind, text = json.loads(line)
        said = io.StringIO()
        if kind == "command":
            ran = CliRunner().invoke(celery, shlex.split(text)[1:])
            failed, output = ran.exit_code, ran.output
        else:
            failed = 0
            with contextlib.redirect_stdout(said):
                try:
                    exec(compile(text, "shell", "exec"), names)
                except BaseException:
                    failed = 1
                    traceback.print_exc(file=said)
            output = said.getvalue()
        print(json.dumps([failed, output]), flush=True)
"""


class DjangoProject:
    """The project in a folder; its workers are real, and are ended by `close`.

    *files*: by their paths, beside those that every project has.  *shared*: where its processes
    leave what they say, if that is not its folder.
    """

    def __init__(
        self,
        folder: Path,
        files: Mapping[str, str],
        *,
        environ: Mapping[str, str] | None = None,
        shared: Path | None = None,
    ) -> None:
        self.folder = folder
        self.shared = shared or folder
        self.workers: dict[str, CeleryProcess] = {}
        #: What the words in capitals of the pages stand for.
        self.known: dict[str, str] = {}
        self._terminal: subprocess.Popen[str] | None = None
        for name, text in {**PROJECT_FILES, **files}.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))
        self.environ = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "proj.settings",
            "PYTHONPATH": os.pathsep.join([str(folder), str(REPOSITORY)]),
            "FOLDER": str(self.shared),
            **(environ or {}),
        }

    def run(self, code: str) -> str:
        """Run code in the project's shell; return what it prints."""
        return self.ran("-c", f"import django; django.setup()\n{code}")

    def ran(self, *arguments: str) -> str:
        """Run Python in the project's folder; return what it prints."""
        return run_python(*arguments, folder=self.folder, environ=self.environ).stdout

    def migrate(self) -> None:
        """Make its tables."""
        self.run(
            "from django.core.management import call_command\n"
            "call_command('migrate', run_syncdb=True, verbosity=0)"
        )

    def worker(
        self,
        name: str,
        concurrency: int = 2,
        options: Sequence[str] = (),
        *,
        app: str = "proj",
        is_ready: Callable[[], bool] | None = None,
    ) -> Worker:
        """Start a worker.  One of another app than the project's has its own way to say that it is
        ready.
        """
        made = Worker(
            name, app=app, environ=self.environ, log_path=self.shared / f"{name}.log",
            is_ready=is_ready or self.ready(name).exists, concurrency=concurrency, options=options,
        )  # fmt: skip
        self.workers[name] = made
        return made

    def ready(self, name: str) -> Path:
        """The file that a worker of this name makes when it is ready."""
        return self.shared / f"{name}.ready"

    # -- what the reader of a page does

    def type(self, command: str) -> str:
        """Run a command of a page; return what it says, and fail if it fails."""
        command = re.sub(r"\b[A-Z]{2,}\b", lambda word: self.known.get(word[0], word[0]), command)
        if command.startswith("celery "):
            return self._ask("command", command)
        if command.startswith("python manage.py "):
            words = shlex.split(command)[2:]
            return self.python(
                f"from django.core.management import call_command\ncall_command(*{words!r})"
            )
        subprocess.run(["bash", "-c", command], check=True, env=self.environ, timeout=30)
        return ""

    def python(self, code: str) -> str:
        """Run code in the project's shell, which goes on; return what it prints."""
        return self._ask("python", code)

    # -- what is seen of its work

    def hold(self, *names: str) -> None:
        """Let work of these names wait in its middle."""
        for name in names:
            (self.shared / f"{name}.hold").touch()

    def let_go(self, *names: str) -> None:
        """Let it go on."""
        for name in names:
            (self.shared / f"{name}.hold").unlink()

    def poison(self, name: str) -> Path:
        """Let work of this name kill its process, until the file is removed."""
        path = self.shared / f"{name}.poison"
        path.touch()
        return path

    def noted(self, name: str) -> list[tuple[int, str]]:
        """The process and the text of each run of this work."""
        path = self.shared / f"{name}.noted"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(int(pid), text) for pid, _, text in (line.partition(" ") for line in lines)]

    def wait_for_runs(self, name: str, count: int = 1) -> int:
        """Wait for so many runs of this work; return the process of the last."""
        wait_for(lambda: len(self.noted(name)) >= count, 20, f"run {count} of {name}")
        assert len(self.noted(name)) == count, name
        return self.noted(name)[-1][0]

    def close(self) -> None:
        """End what runs."""
        for worker in self.workers.values():
            worker.end()
        if self._terminal is not None:
            with self._terminal:
                self._terminal.kill()

    def _ask(self, kind: str, text: str) -> str:
        log = self.folder / "terminal.log"
        if self._terminal is None:
            with log.open("w") as said:
                self._terminal = subprocess.Popen(
                    [sys.executable, "-c", textwrap.dedent(TERMINAL)], cwd=self.folder,
                    env=self.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said,
                    text=True,
                )  # fmt: skip
        assert self._terminal.stdin is not None
        assert self._terminal.stdout is not None
        self._terminal.stdin.write(json.dumps([kind, text]) + "\n")
        self._terminal.stdin.flush()
        answer = self._terminal.stdout.readline()
        assert answer, log.read_text()
        failed, output = json.loads(answer)
        assert not failed, (text, output)
        return str(output)

"""A Django project with Celery, as somebody has it: files, a shell, and workers."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.support.processes import REPOSITORY, CeleryProcess, Worker

__all__ = ["PROJECT_FILES", "SETTINGS", "DjangoProject"]

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
        ran = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=self.environ,
            capture_output=True,
            text=True,
        )
        assert not ran.returncode, ran.stderr
        return ran.stdout

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
            name,
            app=app,
            environ=self.environ,
            log_path=self.shared / f"{name}.log",
            is_ready=is_ready or self.ready(name).exists,
            concurrency=concurrency,
            options=options,
        )
        self.workers[name] = made
        return made

    def ready(self, name: str) -> Path:
        """The file that a worker of this name makes when it is ready."""
        return self.shared / f"{name}.ready"

    def close(self) -> None:
        """End what runs."""
        for worker in self.workers.values():
            worker.end()

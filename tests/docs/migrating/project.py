"""A small Django project in two trees, before and after: the blocks of the pages, on one Redis."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path

from tests.docs.blocks import Page
from tests.support.processes import REPOSITORY, Worker
from tests.support.redis_server import RedisServer

__all__ = ["Tree"]

_FILES = {
    "proj/__init__.py": "from proj.celery import app as celery_app\n__all__ = ('celery_app',)\n",
    "proj/celery.py": """
        import os
        from celery import Celery
        from celery.signals import worker_ready
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "proj.settings")
        ONCE_URL = os.environ["ONCE_URL"]
        app = Celery("proj")
        app.config_from_object("django.conf:settings", namespace="CELERY")

        @worker_ready.connect
        def tell(**_):
            open(os.environ["READY"], "w").close()
    """,
    "proj/settings.py": """
        import os
        SECRET_KEY = "only for tests"
        USE_TZ = True
        INSTALLED_APPS = ["documents"]
        CACHES = {"default": {"BACKEND": "django_redis.cache.RedisCache",
                              "LOCATION": os.environ["CACHE_URL"]}}
        CELERY_BROKER_URL = os.environ["BROKER_URL"]
        CELERY_RESULT_BACKEND = os.environ["RESULT_URL"]
        CELERY_IMPORTS = ["documents." + name for name in os.environ["MODULES"].split()]
        CELERY_RELIABLE = {"LEASE_SECONDS": 4, "SWEEP_SECONDS": 1, "QUEUED_SECONDS": 8}
    """,
    "documents/__init__.py": "",
    # Stands for the user's work: who does it, and how far it came.
    "documents/work.py": """
        import os, pathlib, time

        FOLDER = pathlib.Path(os.environ["FOLDER"])

        def run(kind, number):
            note = FOLDER / f"{kind}-{number}"
            with open(note, "a") as file:
                file.write(f"{os.environ['TREE']} began\\n")
            until = time.monotonic() + 600
            while (FOLDER / f"hold-{kind}-{number}").exists() and time.monotonic() < until:
                time.sleep(0.02)
            with open(note, "a") as file:
                file.write(f"{os.environ['TREE']} ended\\n")
    """,
}


class Tree:
    """The project as it was (`before`), or as it becomes (`after`)."""

    def __init__(
        self, which: str, folder: Path, server: RedisServer, pages: Iterable[Page]
    ) -> None:
        self.which, self.shared = which, folder
        self.root = folder / which
        self.workers: list[Worker] = []
        files = {name: textwrap.dedent(text) for name, text in _FILES.items()}
        modules = []
        for page in pages:
            for block in page.of("python"):
                name, _, of = block.caption.partition(", ")
                if of != ("before" if which == "before" else "") or "/" not in name:
                    continue
                # Compiled at least, where what it imports is not installed.
                compile(block.text, name, "exec")
                if "from relier " in block.text and find_spec("relier") is None:
                    continue
                files[name] = files.get(name, "") + "\n" + block.text + "\n"
                if name.startswith("documents/"):
                    modules.append(Path(name).stem)
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.environ = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "proj.settings",
            "PYTHONPATH": os.pathsep.join([str(self.root), str(REPOSITORY)]),
            "FOLDER": str(folder),
            "TREE": which,
            "MODULES": " ".join(modules),
            "BROKER_URL": server.url(0),
            "RESULT_URL": server.url(1),
            "CACHE_URL": server.url(2),
            "ONCE_URL": server.url(3),
            "RELIER_REDIS_URL": server.url(0),
            "READY": str(folder / f"{which}.ready"),
        }

    def run(self, code: str) -> str:
        """Run code in the project's shell; return what it prints."""
        setup = "import django; django.setup()\nimport proj.celery\n"
        ran = subprocess.run(
            [sys.executable, "-c", setup + code],
            cwd=self.root,
            env=self.environ,
            capture_output=True,
            text=True,
        )
        assert not ran.returncode, ran.stderr
        return ran.stdout

    def worker(
        self,
        name: str,
        concurrency: int,
        options: Sequence[str] = (),
        *,
        app: str = "proj",
        is_ready: Callable[[], bool] | None = None,
    ) -> Worker:
        """Start a worker that takes no more than it can run, and wait until it is up; one of
        another app than the project's has its own way to say that.
        """
        ready = self.shared / f"{name}.ready"
        one = Worker(
            name,
            app=app,
            environ={**self.environ, "READY": str(ready)},
            log_path=self.shared / f"{name}.log",
            is_ready=is_ready or ready.exists,
            concurrency=concurrency,
            options=("--without-gossip", "--without-mingle", *options),
        )
        self.workers.append(one)
        one.wait_until_ready()
        return one

    def close(self) -> None:
        """End what runs."""
        for one in self.workers:
            one.end()

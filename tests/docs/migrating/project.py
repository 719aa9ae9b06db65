"""A small Django project in two trees, before and after: the blocks of the pages, on one Redis."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.docs.blocks import Page
from tests.support.django_project import PROJECT_FILES, DjangoProject
from tests.support.processes import Worker
from tests.support.redis_server import RedisServer

_FILES = {
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
        import os
        import held

        def run(kind, number):
            held.run(f"{kind}-{number}", f"{os.environ['TREE']} began")
            held.note(f"{kind}-{number}", f"{os.environ['TREE']} ended")
    """,
}


class Tree(DjangoProject):
    """The project as it was (`before`), or as it becomes (`after`)."""

    def __init__(
        self, which: str, folder: Path, server: RedisServer, pages: Iterable[Page]
    ) -> None:
        files = {name: textwrap.dedent(text) for name, text in {**PROJECT_FILES, **_FILES}.items()}
        files["proj/celery.py"] += 'ONCE_URL = os.environ["ONCE_URL"]\n'
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
        super().__init__(
            folder / which,
            files,
            shared=folder,
            environ={
                "TREE": which,
                "MODULES": " ".join(modules),
                "BROKER_URL": server.url(0),
                "RESULT_URL": server.url(1),
                "CACHE_URL": server.url(2),
                "ONCE_URL": server.url(3),
                "RELIER_REDIS_URL": server.url(0),
            },
        )

    def run(self, code: str) -> str:
        """Run code in the project's shell; return what it prints."""
        return super().run(f"import proj.celery\n{code}")

    def told(self, name: str) -> list[str]:
        """How far work came, in both trees."""
        return [text for _, text in self.noted(name)]

    def worker(
        self, name: str, concurrency: int = 2, options: Sequence[str] = (), **others: Any
    ) -> Worker:
        """Start a worker that takes no more than it can run, and wait until it is up."""
        options = ("--without-gossip", "--without-mingle", *options)
        one = super().worker(name, concurrency, options, **others)
        one.wait_until_ready()
        return one

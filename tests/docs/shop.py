"""The Django project that somebody has who follows the guides and recipes: its files are their
blocks, its workers are started by their commands, and what its reader types is run.
"""

from __future__ import annotations

import json
import shlex
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.docs.blocks import Page
from tests.support.django_project import SETTINGS, DjangoProject
from tests.support.processes import CeleryProcess
from tests.support.redis_server import RedisServer

#: The files that the pages' blocks are of, by their captions.  This project has no admin:
#: `tests/contrib` runs that one.
FILES_OF_PAGES = ("shop/models.py", "shop/tasks.py", "shop/admin.py", "proj/settings.py")

FILES = {
    "shop/__init__.py": "",
    # Stands for the user's work.
    "shop/work.py": """
        from held import note, run

        def print_invoice(number):
            run(f"invoice-{number}")
            if not isinstance(number, int):
                raise ValueError(number)

        def pages_of(year):
            for page in range(3):
                run(f"year-{year}")
                yield page

        def copy_rows(job, start, size):
            run(f"copy-{job}", start)
            return size if start < 2 * size else 0

        def warm_up(shop_id):
            raise ValueError(shop_id)

        # The name of other work, and what it returns.
        OTHERS = {
            "count_stock": ("stock-{}", None),
            "read_scan": ("scan-{}", "text of {}".format),
            "count_words": ("page-{}", lambda page: len(page.split())),
            "index_shop": ("index-{}", None),
            "write_receipt": ("receipt-{}", "receipt of {}".format),
            "tell_customer": ("customer-{}", None),
            "charge_card": ("charge-{}", None),
            "send_mail": ("mail-{}", None),
            "fetch_prices": ("prices", None),
            "ask_partner": ("partner", None),
            "send_text": ("text-{}", None),
            "write_report": ("report", None),
            "read_page": ("read-{}", str.upper),
            "later": ("later", None),
            "page_somebody": ("pager", None),
            "tell": ("told", None),
        }

        def __getattr__(function):
            if function not in OTHERS:
                raise AttributeError(function)
            name, returned = OTHERS[function]

            def work(*about, idempotency_key=""):
                run(name.format(*about), idempotency_key or " ".join(map(str, about)))
                return returned(*about) if returned else None

            return work
    """,
}
#: Behind the blocks: where the servers of this test are, and that it shall not take long.
OWN = """
    CELERY_BROKER_URL, CELERY_RESULT_BACKEND = {broker!r}, {results!r}
    CELERY_WORKER_SOFT_SHUTDOWN_TIMEOUT = 1
    CELERY_RELIABLE = {{
        "SWEEP_SECONDS": 1, "MAX_LOSSES": 1,
        "PROBE_DIRECTORY": {probes!r},
    }}
"""


class Shop(DjangoProject):
    """The project; what it starts is ended by `close`."""

    def __init__(self, folder: Path, server: RedisServer, pages: Iterable[Page]) -> None:
        self.probes = folder / "probes"
        of_pages: dict[str, str] = {}
        for page in pages:
            for block in page.of("python"):
                if block.caption in FILES_OF_PAGES:
                    of_pages[block.caption] = of_pages.get(block.caption, "") + block.text + "\n"
        own = textwrap.dedent(OWN).format(
            broker=server.url(), results=server.url(1), probes=str(self.probes)
        )
        settings = textwrap.dedent(SETTINGS).format(app="shop", name=str(folder / "db.sqlite3"))
        super().__init__(
            folder,
            {
                **FILES,
                "shop/models.py": of_pages["shop/models.py"],
                "shop/tasks.py": of_pages["shop/tasks.py"],
                "proj/settings.py": settings + of_pages["proj/settings.py"] + own,
            },
        )

    def call(self, command: str) -> str:
        """Publish by a ``celery … call`` of a page; it is the ID of what follows."""
        self.known["ID"] = self.type(command).strip()
        return self.known["ID"]

    def start_worker(self, command: str) -> None:
        """Start a worker by a page's own command; `wait_until_ready` waits for all."""
        celery, a, app, *arguments = shlex.split(command)
        assert (celery, a, app, arguments[:2]) == ("celery", "-A", "proj", ["worker", "-n"])
        name = arguments[2].partition("@")[0]
        self.workers[name] = CeleryProcess(
            name,
            # Each of them saves a second.
            [*arguments, "--without-mingle", "--without-gossip"],
            app=app,
            environ=self.environ,
            log_path=self.folder / f"{name}.log",
            is_ready=self.ready(name).exists,
        )

    def wait_until_ready(self) -> None:
        """Wait until all workers are up."""
        for worker in self.workers.values():
            worker.wait_until_ready()

    def worker_of(self, pid: int) -> CeleryProcess:
        """The worker that has this process."""
        (found,) = [one for one in self.workers.values() if pid in one.children()]
        return found

    def shown(self, task_id: str) -> dict[str, Any]:
        """What ``reliable show`` says of a task."""
        said: dict[str, Any] = json.loads(
            self.type(f"celery -A proj reliable show {task_id} --json")
        )
        return said

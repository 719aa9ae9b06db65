"""The guides and recipes do what they say: the Django project that somebody has who follows them.

Its files are their blocks, its two workers are started and killed by their commands, and what its
reader types is run.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import yaml
from celery import Celery
from celery.app.defaults import NAMESPACES, flatten
from celery.bin.worker import worker as worker_command

from celery_reliable import ReliableConfig
from celery_reliable.operations.cli import reliable
from tests.docs.blocks import Page
from tests.support.django_project import SETTINGS, DjangoProject
from tests.support.processes import CeleryProcess
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

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


PAGES = (
    "guides/dead-letters.rst",
    "guides/long-and-later.rst",
    "guides/never-in-circles.rst",
    "guides/never-lost.rst",
    "guides/never-twice.rst",
    "guides/publishing.rst",
    "guides/rates.rst",
    "guides/results.rst",
    "guides/rows.rst",
    "guides/shutdown.rst",
    "recipes/canvases.rst",
    "recipes/effects-once.rst",
    "recipes/kubernetes.rst",
    "recipes/long-tasks.rst",
    "recipes/periodic.rst",
)
READ = {name.removesuffix(".rst"): Page(name) for name in PAGES}


@pytest.fixture
def shop(tmp_path: Path, redis_server: RedisServer) -> Iterator[Shop]:
    """The project of all pages, with its two workers."""
    made = Shop(tmp_path, redis_server, READ.values())
    try:
        one, two = READ["guides/never-lost"].commands("See it work")[:2]
        made.type("python manage.py migrate --run-syncdb --verbosity 0")
        made.start_worker(one)
        made.start_worker(two)
        made.wait_until_ready()
        yield made
    finally:
        made.close()


def commands(page: str, section: str = "") -> list[str]:
    """The commands of a page, in their order."""
    return READ[page].commands(section)


def test_what_the_pages_say_happens(shop: Shop) -> None:
    shop.hold("invoice-4711")
    _, _, call, look, kill, show, events = commands("guides/never-lost")
    killed = shop.call(call)
    first = shop.wait_for_runs("invoice-4711")

    never_twice(shop)
    long_and_later(shop)

    assert f"{shop.worker_of(first).pid}" in shop.type(look)
    shop.known["PID"] = str(shop.worker_of(first).pid)
    shop.type(kill)
    second = shop.wait_for_runs("invoice-4711", 2)
    assert shop.worker_of(second).is_running
    shop.known["ID"] = killed
    assert killed in shop.type(show)
    assert "send_invoice" in shop.type(events)
    assert (shop.shown(killed)["state"], shop.shown(killed)["attempts"]) == ("running", 2)
    shop.let_go("invoice-4711")

    in_circles_and_in_the_morning(shop)
    results(shop)
    publishing(shop)
    rates(shop)
    rows(shop)
    effects_once(shop)
    long_tasks(shop)
    periodic(shop)
    canvases(shop)
    probes(shop)
    for page in READ.values():
        for command in page.inline():
            shop.type(command)
    shutdown(shop)


def test_every_block_of_python_is_a_file_or_typed_above() -> None:
    captions = [block.caption for page in READ.values() for block in page.blocks if block.caption]
    typed = [one for one in captions if one not in FILES_OF_PAGES]
    assert typed == ["python manage.py shell"] * 4 + ["worker.yaml"]


def never_twice(shop: Shop) -> None:
    first, second, other, tasks, objects = commands("guides/never-twice")
    shop.hold("stock-7", "stock-8")
    holder = shop.call(first)
    shop.wait_for_runs("stock-7")
    waiter = shop.call(second)
    shop.call(other)
    shop.wait_for_runs("stock-8")
    wait_for(lambda: shop.shown(waiter).get("why", {}).get("kind") == "object", 15, "it waits")
    assert shop.shown(waiter)["why"]["holder"] == holder
    assert "update_stock" in shop.type(tasks)
    assert holder in shop.type(objects + " --json")
    shop.wait_for_runs("stock-7")
    shop.let_go("stock-7", "stock-8")


def long_and_later(shop: Shop) -> None:
    later, show, long, workers = commands("guides/long-and-later")
    parked = shop.call(later)
    assert parked in shop.type(show)
    assert shop.shown(parked)["state"] == "waiting"
    shop.hold("year-2026")
    shop.call(long)
    shop.wait_for_runs("year-2026")
    assert "export_year" in shop.type(workers)
    shop.let_go("year-2026")
    shop.wait_for_runs("stock-7", 2)
    wait_for(lambda: len(shop.noted("year-2026")) == 3, 10, "all pages, once")


def in_circles_and_in_the_morning(shop: Shop) -> None:
    call, groups, listed, show = commands("guides/never-in-circles")
    poison = shop.poison("scan-poison")
    letter = shop.call(call)

    def buried() -> list[dict[str, str]]:
        said = json.loads(shop.type(groups + " --json"))["groups"]
        return [one for one in said if one["reason"] == "lost"]

    (group,) = wait_for(buried, 15, "the dead letter")
    # `max_losses=1`: lost once, and once more.
    shop.wait_for_runs("scan-poison", 2)
    assert "read_upload" in shop.type(listed)
    assert "SIGKILL" in shop.type(show)
    wait_for(lambda: any(letter in text for _, text in shop.noted("pager")), 5, "the page")

    groups, in_group, show, dry, replay, audit, discard = commands(
        "guides/dead-letters", "In the morning"
    )
    shop.known["GROUP"] = group["group"]
    poison.unlink()
    for command in (groups, in_group, show, dry):
        shop.type(command)
    shop.wait_for_runs("scan-poison", 2)
    shop.type(replay)
    shop.wait_for_runs("scan-poison", 3)
    assert "replay" in shop.type(audit)
    shop.call("celery -A proj call shop.tasks.send_invoice --args '[\"bad\"]'")
    wait_for(lambda: shop.shown(shop.known["ID"])["state"] == "dead", 10, "a failure")
    shop.type(discard)
    unread = shop.call("celery -A proj call shop.tasks.warm_cache --args '[1]'")
    wait_for(
        lambda: shop.shown(unread)["state"] in ("absent", "ended"),
        10,
        "it failed, and is no letter",
    )


def results(shop: Shop) -> None:
    tasks, workers, kill, events = commands("guides/results")
    shop.hold("page-a b")
    shop.python("from shop.tasks import count_book\ncounted = count_book(['a b', 'c'])")
    shop.known["PID"] = str(shop.wait_for_runs("page-a b"))
    assert "count_page" in shop.type(tasks)
    shop.type(workers)
    shop.type(kill)
    shop.let_go("page-a b")
    shop.wait_for_runs("page-a b", 2)
    assert shop.python("print(counted.get(timeout=20))") == "3\n"
    assert "count_page" in shop.type(events)


def publishing(shop: Shop) -> None:
    page = READ["guides/publishing"]
    shop.hold("index-1")
    shop.python(page.block("first = rebuild_index").text)
    (tasks,) = page.commands()
    assert "rebuild_index" in shop.type(tasks)
    shop.hold("invoice-80")
    said = shop.python(page.block('if_exists="keep"').text)
    assert said.split()[0] in ("queued", "running")
    shop.let_go("invoice-80")
    shop.python(page.block("careful = ").text + "careful.get(timeout=10)")
    shop.wait_for_runs("invoice-80")
    shop.wait_for_runs("invoice-82")
    shop.let_go("index-1")
    # Also after a success.
    shop.python("first.get(timeout=10)\nassert rebuild_index.delay(1).id == first.id")
    shop.wait_for_runs("index-1")
    shop.python(
        "import shop.tasks\n"
        "from unittest import mock\n"
        "shop.tasks.order_paid(71)\n"
        "for error in (shop.tasks.NotPublished(), shop.tasks.PublishUnknown()):\n"
        "    with mock.patch.object(shop.tasks.send_invoice, 'apply_async', side_effect=error):\n"
        "        shop.tasks.order_paid(72)"
    )
    shop.wait_for_runs("invoice-71")
    assert [text for _, text in shop.noted("later")] == ["72", "72"]


def rates(shop: Shop) -> None:
    first, second, show, status = commands("guides/rates")
    shop.call(first)
    shop.wait_for_runs("partner")
    waits = shop.call(second)
    wait_for(lambda: shop.shown(waits).get("why", {}).get("kind") == "rate", 8, "it waits")
    assert "under the rate of shop.tasks.ask_for_price" in shop.type(show)
    shop.type(status)
    shop.python(
        "from shop.tasks import remind\nfor customer in (1, 2, 1): remind.delay(customer, 'hello')"
    )
    for name in ("text-1", "text-2"):
        shop.wait_for_runs(name)
    assert len(shop.noted("text-1")) == len(shop.noted("partner")) == 1


def rows(shop: Shop) -> None:
    page = READ["guides/rows"]
    shop.python(page.block("pay(Order.objects.create())").text)
    read = "print(*Order.objects.values_list('task_status', 'receipt'), end='')"
    both = " ".join(repr(("succeeded", f"receipt of {pk}")) for pk in (1, 2))
    wait_for(lambda: shop.python(read) == both, 20, "both receipts")
    (tasks,) = page.commands()
    shop.type(tasks)
    # A row whose task kills its process, once and once too often; a replay runs it.
    poison = shop.poison("scan-1")
    shop.python(
        "from shop.models import Scan\n"
        "from shop.tasks import read\n"
        "scan = Scan.objects.create()\n"
        "reading = read.delay(scan.pk)"
    )
    shop.wait_for_runs("scan-1", 2)
    shop.known["ID"] = shop.python("print(reading.id, end='')")
    wait_for(lambda: shop.shown(shop.known["ID"])["state"] == "dead", 15, "the dead letter")
    shop.python(
        "from celery_reliable.contrib.django.tasks import rows\nrows.delay(older_than_seconds=0)\n"
    )
    state = "print(Scan.objects.get(pk=scan.pk).task_status, end='')"
    wait_for(lambda: shop.python(state) == "dead", 15, "the row says so")
    poison.unlink()
    shop.type("celery -A proj reliable dead-letters replay ID")
    wait_for(lambda: shop.python(state) == "succeeded", 15, "the replay")
    texts = "print(*Scan.objects.values_list('text', flat=True), sep=', ', end='')"
    assert shop.python(texts) == "text of 1, copy of text of 1"


def effects_once(shop: Shop) -> None:
    shop.hold("customer-1", "charge-me")
    shop.python(
        "from shop.models import Account, Booking, Thanks\n"
        "from shop.tasks import book, charge, thank\n"
        "account = Account.objects.create(pk=1)\n"
        "booked = book.delay(Booking.objects.create(account=account, cents=5).pk)\n"
    )
    # Between the commit and the end of the task.
    shop.known["PID"] = str(shop.wait_for_runs("customer-1"))
    shop.type("kill -9 PID")
    shop.python(
        "charged, thanked = charge.delay('me', 5), thank.delay(\n"
        "    Thanks.objects.create(address='you').pk)"
    )
    shop.known["PID"] = str(shop.wait_for_runs("charge-me"))
    shop.type("kill -9 PID")
    shop.wait_for_runs("customer-1", 2)
    shop.wait_for_runs("charge-me", 2)
    shop.let_go("customer-1", "charge-me")
    shop.python("for one in (booked, charged, thanked): one.get(timeout=10)")
    assert shop.python("print(Account.objects.get(pk=1).cents)") == "5\n"
    assert len({text for _, text in shop.noted("charge-me")}) == 1
    shop.wait_for_runs("mail-you")


def long_tasks(shop: Shop) -> None:
    shop.python(
        "from shop.tasks import copy_all, copy_slice\n"
        "assert copy_all.delay('whole').get(timeout=10) == 2000\n"
        "copy_slice.delay('sliced')"
    )
    wait_for(lambda: len(shop.noted("copy-sliced")) == 3, 10, "three slices")
    assert [text for _, text in shop.noted("copy-sliced")] == ["0", "1000", "2000"]
    for command in commands("recipes/long-tasks"):
        shop.type(command)


def periodic(shop: Shop) -> None:
    shop.hold("prices")
    shop.python(
        "from shop.tasks import hourly_report, update_prices\nrunning = update_prices.delay()"
    )
    shop.wait_for_runs("prices")
    shop.python(
        "assert update_prices.delay().get(timeout=10) == {'skipped': running.id}\n"
        "report = hourly_report.delay()\n"
        "report.get(timeout=10)\n"
        "assert hourly_report.delay().id == report.id"
    )
    shop.let_go("prices")
    shop.wait_for_runs("report")
    objects, skipped = commands("recipes/periodic")
    assert shop.python("print(report.id, end='')") in shop.type(objects + " --json")
    assert "update_prices" in shop.type(skipped)


def canvases(shop: Shop) -> None:
    shop.poison("read-torn")
    shop.python(
        "from celery import group\n"
        "from shop.tasks import scan_book, scan_page, scan_page_once\n"
        "whole = scan_book(['one', 'two'])\n"
        "torn = scan_book(['three', 'torn'])\n"
        "assert whole.get(timeout=10) == 'ONE TWO'\n"
        "for _ in range(2):\n"
        "    assert scan_page_once.delay('once').get(timeout=10) == 'ONCE'"
    )
    shop.wait_for_runs("read-once")
    wait_for(lambda: shop.noted("told"), 15, "the failed book")
    shop.wait_for_runs("read-torn")
    letters, show = commands("recipes/canvases")
    assert "scan_page" in shop.type(letters)
    shop.type(show)


def probes(shop: Shop) -> None:
    """Those of the Deployment, as its kubelet runs them."""
    (block,) = READ["recipes/kubernetes"].of("yaml")
    (container,) = yaml.safe_load(block.text)["spec"]["template"]["spec"]["containers"]
    found = {tuple(one["exec"]["command"]) for key, one in container.items() if "Probe" in key}
    for program, *arguments in found:
        script = Path(sys.executable).with_name(program)
        arguments = [one.replace("/run/celery", str(shop.probes)) for one in arguments]
        subprocess.run([str(script), *arguments], check=True, timeout=20)


def shutdown(shop: Shop) -> None:
    start, stop, show, events = commands("guides/shutdown")
    assert start.startswith("REMAP_SIGTERM=SIGQUIT celery -A proj worker ")
    shop.hold("invoice-9")
    moved = shop.call("celery -A proj call shop.tasks.send_invoice --args '[9]'")
    worker = shop.worker_of(shop.wait_for_runs("invoice-9"))
    shop.known["PID"] = str(worker.pid)
    shop.type(stop)
    worker.wait_until_ended()
    shop.type(show)
    shop.type(events)
    shown = shop.shown(moved)
    assert (shown["state"], shown["losses"]) == ("queued", 0)


def test_every_setting_of_the_pages_is_one() -> None:
    known = {f"CELERY_{name.upper()}" for name in dict(flatten(NAMESPACES))} | {"INSTALLED_APPS"}
    found = 0
    for page in READ.values():
        for block in page.blocks:
            if block.caption != "proj/settings.py":
                continue
            names: dict[str, Any] = {"INSTALLED_APPS": []}
            exec(compile(block.text, page.name, "exec"), names)
            given = {name for name in names if name.isupper()}
            assert given - {"CELERY_RELIABLE"} <= known, page.name
            ReliableConfig.from_mapping(names.get("CELERY_RELIABLE"))
            found += 1
    assert found > 8


def test_what_is_said_to_be_the_default_is_it() -> None:
    names: dict[str, Any] = {}
    exec(READ["guides/never-lost"].block("WITNESS_SECONDS").text, names)
    assert ReliableConfig.from_mapping(names["CELERY_RELIABLE"]) == ReliableConfig()


def test_the_deployment_names_what_there_is() -> None:
    (block,) = READ["recipes/kubernetes"].of("yaml")
    pod = yaml.safe_load(block.text)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    environ = {one["name"]: one["value"] for one in container["env"]}
    # It has some seconds to give back what it holds, after the tasks' own.
    soft = float(environ["CELERY_WORKER_SOFT_SHUTDOWN_TIMEOUT"])
    assert soft + 10 <= pod["terminationGracePeriodSeconds"]
    # billiard reads it.
    assert environ["REMAP_SIGTERM"] == "SIGQUIT"
    assert container["command"][:4] == ["celery", "-A", "proj", "worker"]
    called = SimpleNamespace(app=Celery("proj"))
    worker_command.make_context("worker", container["command"][4:], obj=called)
    probed = {key: one["exec"]["command"] for key, one in container.items() if "Probe" in key}
    (mount,) = container["volumeMounts"]
    (volume,) = pod["volumes"]
    assert (mount["name"], volume["emptyDir"]) == (volume["name"], {"medium": "Memory"})
    assert {command[2] for command in probed.values()} == {mount["mountPath"]}
    # And the settings read what the pod gives.
    names: dict[str, Any] = {}
    with mock.patch.dict(os.environ, environ):
        exec(READ["recipes/kubernetes"].block("import os").text, names)
    assert names["CELERY_WORKER_SOFT_SHUTDOWN_TIMEOUT"] == soft
    assert names["CELERY_RELIABLE"] == {"PROBE_DIRECTORY": mount["mountPath"]}
    for command in commands("recipes/kubernetes"):
        program, _, inner = command.partition(" -- ")
        assert program.startswith("kubectl "), command
        if inner.startswith("celery-reliable-probe"):
            assert inner.split() in list(probed.values())
        if inner.startswith("celery "):
            _, _, _, _, name, *options = inner.split()
            reliable.commands[name].make_context(name, options)

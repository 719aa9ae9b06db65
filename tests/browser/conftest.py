"""One site, one worker and one browser for all stories; letters and settings of each test's own."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from celery import Celery

from celery_reliable.app import reliable_of
from celery_reliable.operations import Desk, IfRunning, Kind
from tests.browser.shop.factory import OPEN, create_app
from tests.browser.visitor import HEIGHT, WIDTH, Night, Site, Visitor
from tests.integration.conftest import QUICK, collect_what_apps_leave
from tests.support.processes import Worker
from tests.support.redis_server import RedisServer, free_port
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

#: Where apt has installed a browser, a browser that is missing is a fault.
EXPECTED = "TESTS_EXPECT_BROWSER"

HERE = Path(__file__).parent

#: One process runs all of this folder, so that there is one browser.
GROUP = pytest.mark.xdist_group("browser")

#: Who there is, and what each may do.
USERS: dict[str, list[str] | None] = {
    "root": None,
    "replayer": ["view_deadletter", "change_deadletter"],
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(GROUP)


PAGE_SECONDS = 30.0

#: Nothing but the page that a test asks for: no updates, no reports, no other address.  What else
#: a test wants chromedriver asks for.
_FLAGS = (
    "--headless=new",
    # Containers have no user namespaces, and little shared memory.
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--disable-component-update",
    "--disable-domain-reliability",
    "--disable-extensions",
    "--disable-breakpad",
    "--disable-features=Translate,OptimizationHints,MediaRouter,PasswordManagerOnboarding",
    "--metrics-recording-only",
    "--no-default-browser-check",
    "--no-pings",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
    "--lang=en-GB",
    f"--window-size={WIDTH},{HEIGHT}",
)


def _binary(*names: str) -> str | None:
    return next(filter(None, map(shutil.which, names)), None)


def why_no_browser() -> str:
    """Why no test can have a browser here; empty when one can."""
    if _binary("chromium", "chromium-browser") is None:
        return "no chromium is installed"
    if _binary("chromedriver") is None:
        return "no chromedriver is installed (Debian: chromium-driver)"
    if importlib.util.find_spec("selenium") is None:
        return "selenium is not installed"
    return ""


@pytest.fixture(scope="session", autouse=True)
def _needs_a_browser() -> None:
    if reason := why_no_browser():
        if os.environ.get(EXPECTED):
            pytest.fail(f"{reason}, though {EXPECTED} is set")
        pytest.skip(reason)


@pytest.fixture(scope="session")
def shop_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """The Redis of the shop: queues, ledger, results."""
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory, shop_redis: RedisServer) -> Iterator[Site]:
    """The site with the desk."""
    with Site(tmp_path_factory.mktemp("site"), shop_redis.url(), USERS) as running:
        yield running


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    """A headless Chromium with its profile, its home and its log in a folder of its own."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    home = tmp_path_factory.mktemp("browser")
    options = webdriver.ChromeOptions()
    options.binary_location = _binary("chromium", "chromium-browser") or ""
    for flag in (*_FLAGS, f"--user-data-dir={home / 'profile'}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # With both paths given, selenium looks for nothing and fetches nothing.
    service = Service(
        _binary("chromedriver"),
        port=free_port(),
        log_output=str(home / "driver.log"),
        env={**os.environ, "HOME": str(home), "TMPDIR": str(home)},
        # Ctrl-C at the terminal is for pytest.
        popen_kw={"start_new_session": True},
    )
    try:
        running = webdriver.Chrome(options=options, service=service)
        running.set_page_load_timeout(PAGE_SECONDS)
        running.set_script_timeout(PAGE_SECONDS)
        yield running
        running.quit()
    finally:
        wait_for(lambda: not _killed(home, service), 10, "the end of the whole browser")


def _killed(home: Path, service: Any) -> list[psutil.Process]:
    """Kill what has not ended: some of it leaves its session, and some forgets its home."""
    session = service.process.pid if service.process else 0
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, ProcessLookupError):
            is_ours = (
                process.environ().get("HOME") == str(home) or os.getsid(process.pid) == session
            )
            if is_ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
                # psutil compares the time of its start: an id may be somebody else's by now.
                process.kill()
    return found


@pytest.fixture(scope="session")
def shop(shop_redis: RedisServer) -> Iterator[Celery]:
    """The shop's app in the tests' process."""
    app = create_app(shop_redis.url())
    yield app
    # The server is about to go: a result that is collected later has nobody to tell.
    app.backend.remove_pending_result = lambda result: None
    reliable_of(app).close()
    app.close()
    app.own.close()
    collect_what_apps_leave()


@pytest.fixture(scope="session")
def shop_worker(
    tmp_path_factory: pytest.TempPathFactory, shop: Celery, shop_redis: RedisServer
) -> Iterator[Worker]:
    """The shop's worker, which takes from the queue `celery`."""
    with Desk(shop) as desk:
        worker = Worker(
            "worker",
            app="tests.browser.shop.serve",
            environ={**os.environ, "BROKER_URL": shop_redis.url()},
            log_path=tmp_path_factory.mktemp("worker") / "worker.log",
            is_ready=lambda: bool(desk.workers.all()),
            options=QUICK,
        )
        try:
            worker.wait_until_ready()
            yield worker
        finally:
            worker.end()


@pytest.fixture
def desk(shop: Celery) -> Iterator[Desk]:
    """The desk as an operator opens it; after the test nothing is left on it."""
    with Desk(shop) as found:
        yield found
        shop.own.set(OPEN, 1)
        # Before the gate is shut: whoever waited for an object would have it then, and a slot.
        wait_for(lambda: _is_quiet(found), 60, "the end of what is still to do")
        found.bulk.discard(by="the test", all_=True)
        shop.own.flushdb()


@pytest.fixture
def visitor(driver: Chrome, site: Site, desk: Desk) -> Iterator[Visitor]:
    """Somebody at the browser; what it has on its console in the end was expected."""
    somebody = Visitor(driver, site)
    yield somebody
    somebody.set_media()
    left = somebody.console()
    assert not left, left


@pytest.fixture
def night(shop: Celery, shop_worker: Worker, desk: Desk) -> Night:
    """What failed while nobody looked, by the worker that runs."""
    return Night(shop, desk)


def _is_quiet(desk: Desk) -> bool:
    parked = [one.task_id for one in desk.tasks.page(state=Kind.WAITING).items]
    if parked:
        desk.revocations.revoke(parked, by="the test", if_running=IfRunning.FINISH)
    tasks = desk.status().tasks
    depth = {queue.name: queue.depth for queue in desk.queues.all()}.get("celery")
    return not (depth or sum(count for kind, count in tasks.items() if kind != "dead"))

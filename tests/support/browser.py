"""A real browser of one's own: a headless Chromium and its driver, ended with all they started."""

from __future__ import annotations

import importlib.util
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from tests.support.redis_server import free_port
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from selenium.webdriver import Chrome
    from typing_extensions import Self

__all__ = ["WIDTH", "Browser", "why_no_browser"]

WIDTH, HEIGHT = 1280, 900
GONE_SECONDS = 10.0
PAGE_SECONDS = 30.0

#: Nothing but the page that a test asks for: no account, no updates, no reports, no other address.
_FLAGS = (
    "--headless=new",
    # Containers have no user namespaces, and little shared memory.
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-extensions",
    "--disable-sync",
    "--disable-breakpad",
    "--disable-features=Translate,OptimizationHints,MediaRouter,PasswordManagerOnboarding",
    "--metrics-recording-only",
    "--no-default-browser-check",
    "--no-first-run",
    "--no-pings",
    "--password-store=basic",
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


class Browser:
    """One Chromium with its profile, its home and its log in `directory`, for a `with`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._driver: Chrome | None = None
        self._session = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def driver(self) -> Chrome:
        """What drives it. Raises RuntimeError while it is down."""
        if self._driver is None:
            raise RuntimeError("this browser is not running")
        return self._driver

    def start(self) -> None:
        """Start driver and browser, with an empty page."""
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service

        options = webdriver.ChromeOptions()
        options.binary_location = _binary("chromium", "chromium-browser") or ""
        for flag in (*_FLAGS, f"--user-data-dir={self.directory / 'profile'}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        # With both paths given, selenium looks for nothing and fetches nothing.
        service = Service(
            _binary("chromedriver"),
            port=free_port(),
            log_output=str(self.directory / "driver.log"),
            env={**os.environ, "HOME": str(self.directory), "TMPDIR": str(self.directory)},
            # Ctrl-C at the terminal is for pytest.
            popen_kw={"start_new_session": True},
        )
        try:
            self._driver = webdriver.Chrome(options=options, service=service)
        except BaseException:
            self.kill()
            raise
        self._session = service.process.pid
        self._driver.set_page_load_timeout(PAGE_SECONDS)
        self._driver.set_script_timeout(PAGE_SECONDS)

    def kill(self) -> None:
        """End it in order, and kill what is left of it."""
        if self._driver is not None:
            self._driver.quit()
            self._driver = None
        wait_for(self._kill_survivors, GONE_SECONDS, "the end of the whole browser")

    def survivors(self) -> list[psutil.Process]:
        """What of it has not ended: some of it leaves its session, and some forgets its home."""
        return [process for process in psutil.process_iter() if self._is_ours(process)]

    def set_media(self, **features: str) -> None:
        """Have pages find these features of the medium: `prefers_color_scheme="dark"`."""
        named = [
            {"name": name.replace("_", "-"), "value": value} for name, value in features.items()
        ]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": named})

    def console(self) -> list[dict[str, Any]]:
        """What pages wrote to the console, and the browser about them, since it was last asked."""
        return list(self.driver.get_log("browser"))

    def _kill_survivors(self) -> bool:
        survivors = self.survivors()
        for process in survivors:
            # psutil compares the time of its start: an id may be somebody else's by now.
            with suppress(psutil.NoSuchProcess):
                process.kill()
        return not survivors

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                return False
            home = process.environ().get("HOME")
            return home == str(self.directory) or os.getsid(process.pid) == self._session
        except (psutil.Error, ProcessLookupError):
            return False

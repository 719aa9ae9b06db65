"""Who sits at the browser, the site before them, and what failed while nobody looked."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from celery import Celery

from celery_reliable.operations import Desk, Wait
from tests.browser.shop.factory import MENDED, SECRET
from tests.support.processes import REPOSITORY
from tests.support.redis_server import free_port
from tests.support.serving import Server, spawn
from tests.support.waiting import listens, wait_for

if TYPE_CHECKING:
    from selenium.webdriver import Chrome
    from selenium.webdriver.remote.webelement import WebElement

T = TypeVar("T")

LOOK_SECONDS = 20.0
WIDTH, HEIGHT = 1280, 900
_MOST_TABS = 200
#: Pixels of a picture.
_TALLEST = 1_000
#: More than the desk has of a few letters.
_MOST_PAGES = 150

#: Where all of the desk is.
DESK = "/admin/celery_reliable/"

#: Keys, as WebDriver has them.
TAB, ENTER, SPACE = "\ue004", "\ue007", "\ue00d"

#: What can be clicked.
_THINGS = "a, button, input[type=submit], summary"

_BACKGROUND = """
const [r, g, b] = getComputedStyle(document.body).backgroundColor.match(/[0-9.]+/g).map(Number);
return (r + g + b) / 3 / 255;
"""

_OFF_SCREEN = """
return [...document.querySelectorAll(arguments[0])]
  .filter(one => one.checkVisibility() && one.getBoundingClientRect().right > innerWidth + 1)
  .map(one => one.outerHTML.slice(0, 120));
"""


class Visitor:
    """One person at the browser."""

    def __init__(self, driver: Chrome, site: Site) -> None:
        self.driver = driver
        self.site = site
        self._sessions: dict[str, dict[str, Any]] = {}

    # Where they are

    def open(self, path: str) -> None:
        """Type an address of the site."""
        self.driver.get(self.site.url(path))

    def log_in(self, name: str) -> None:
        """Become this user: by the form the first time, by the cookie of that session later."""
        # Cookies are those of the page that is open.
        if not self.driver.current_url.startswith(self.site.url()):
            self.open("/favicon.ico")
        self.driver.delete_all_cookies()
        if session := self._sessions.get(name):
            self.driver.add_cookie(session)
            return
        self.open("/admin/login/")
        self.find("#id_username").send_keys(name)
        self.find("#id_password").send_keys(name)
        self.follow(self.find("[type=submit]"))
        session = self.driver.get_cookie("sessionid")
        assert session is not None
        self._sessions[name] = session

    @property
    def path(self) -> str:
        """The address that is open, without the site's."""
        return str(self.driver.current_url).removeprefix(self.site.url("")).split("?")[0]

    # What they see

    @property
    def text(self) -> str:
        """All that can be read on the page."""
        return str(self._still(lambda: self.find("body").text))

    @property
    def main(self) -> str:
        """What can be read below the breadcrumbs."""
        return str(self._still(lambda: self.find("#content").text))

    def read(self, css: str) -> str:
        """The text of what fits, also while the page goes on to the next one."""
        wait_for(lambda: bool(self.all(css)), LOOK_SECONDS, css)
        return str(self._still(lambda: self.find(css).text))

    def all(self, css: str) -> list[WebElement]:
        """What fits, if anything."""
        return list(self.driver.find_elements("css selector", css))

    def find(self, css: str) -> WebElement:
        """The first that fits, and can be seen, as soon as there is one."""

        def seen() -> WebElement | None:
            return next((one for one in self.all(css) if one.is_displayed()), None)

        return wait_for(lambda: self._still(seen), LOOK_SECONDS, f"{css} on {self.path}")

    def named(self, name: str, css: str = _THINGS) -> WebElement:
        """The first thing to click whose name, as a screen reader says it, begins like this."""
        found = [
            one
            for one in self.all(css)
            if one.is_displayed() and one.accessible_name.strip().startswith(name)
        ]
        assert found, f"nothing to click on {self.path} is named {name!r}:\n{self.text}"
        return found[0]

    def wait_for_text(self, text: str, timeout_seconds: float = LOOK_SECONDS) -> None:
        """Look at the page until this can be read, without touching it."""
        wait_for(lambda: text in self.text, timeout_seconds, f"{text!r} on {self.path}")

    def links(self, css: str) -> list[str]:
        """Where the links that fit lead to, whether they can be seen or not, without fragments."""
        script = "return arguments[0].map(one => one.href.split('#')[0])"
        return [str(one) for one in self.driver.execute_script(script, self.all(css))]

    def attributes(self, css: str, name: str) -> list[str]:
        """This attribute of all that fits."""
        script = "return arguments[0].map(one => one.getAttribute(arguments[1]))"
        return [str(one) for one in self.driver.execute_script(script, self.all(css), name)]

    def arrived(self) -> tuple[int, int]:
        """The status of the page that is open, and how many bytes it came as."""
        script = (
            "const [it] = performance.getEntriesByType('navigation');"
            "return [it.responseStatus, it.decodedBodySize]"
        )
        status, size = self.driver.execute_script(script)
        return int(status), int(size)

    def walk(self) -> Iterator[str]:
        """Open every page of the desk that a link leads to, one after the other; of those that ask
        a page for the same in other words, one.
        """
        seen: set[tuple[str, ...]] = set()
        ahead = [self.site.url(DESK)]
        while ahead:
            address = ahead.pop()
            page, _, query = address.partition("?")
            asked = (page, *sorted(one.partition("=")[0] for one in query.split("&")))
            if asked in seen:
                continue
            seen.add(asked)
            assert len(seen) <= _MOST_PAGES, sorted(seen)
            self.driver.get(address)
            ahead += self.links(f"a[href*='{DESK}'], .desk a[href^='?']")
            yield address

    def background(self) -> float:
        """How light the page is: 0 is black, 1 is white."""
        return float(self.driver.execute_script(_BACKGROUND))

    def overflows(self) -> bool:
        """Whether the page is wider than the window."""
        script = "return document.documentElement.scrollWidth > innerWidth"
        return bool(self.driver.execute_script(script))

    def off_screen(self, css: str, width: int) -> list[str]:
        """What fits, can be seen, and reaches beyond the right edge of a screen of this width."""
        size = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        found: list[str] = self.driver.execute_script(_OFF_SCREEN, css)
        self.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        return found

    def picture(self, path: Path) -> None:
        """Have a picture of the page, from its top to its end or to where it gets long."""
        height = int(self.driver.execute_script("return document.body.scrollHeight"))
        size = {"width": WIDTH, "height": min(height, _TALLEST)}
        same = {"deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {**size, **same})
        self.driver.execute_script("scrollTo(0, 0); document.activeElement.blur()")
        path.write_bytes(self.driver.get_screenshot_as_png())
        self.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})

    def console(self) -> list[str]:
        """What was written to the browser's console since it was last asked."""
        return [f"{one['level']}: {one['message']}" for one in self.driver.get_log("browser")]

    def set_media(self, **features: str) -> None:
        """Have pages find these features of the medium: `prefers_color_scheme="dark"`."""
        named = [{"name": one.replace("_", "-"), "value": features[one]} for one in features]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": named})

    # What they do

    def press(self, element: WebElement) -> None:
        """Click on what changes the page that is open."""
        element.click()

    def follow(self, element: WebElement) -> None:
        """Click on what leads to another page, or to this one anew, and wait until it is there."""
        self._leaving()
        self.press(element)
        self._wait_for_another()

    def click(self, name: str, css: str = _THINGS) -> None:
        """Follow what is named so."""
        self.follow(self.named(name, css))

    def enter(self) -> None:
        """Press Enter where the focus is, and wait for the page that it leads to."""
        self._leaving()
        self.type(ENTER)
        self._wait_for_another()

    def _leaving(self) -> None:
        self.driver.execute_script("document.documentElement.dataset.seen = 'yes'")

    def _wait_for_another(self) -> None:
        script = (
            "return document.readyState === 'complete' && !document.documentElement.dataset.seen"
        )
        wait_for(
            lambda: self._still(lambda: self.driver.execute_script(script)),
            LOOK_SECONDS,
            f"another page than {self.path}",
        )

    def fill(self, name: str, text: str) -> None:
        """Type into the filter's input of this name."""
        field = self.find(f"#filter-{name}")
        field.clear()
        field.send_keys(text)

    def tab_to(self, name: str) -> None:
        """Press Tab until the focus is on what is named so."""
        for _ in range(_MOST_TABS):
            self.driver.switch_to.active_element.send_keys(TAB)
            focused = self.driver.switch_to.active_element
            if focused.tag_name != "body" and focused.accessible_name.strip().startswith(name):
                return
        raise AssertionError(f"{_MOST_TABS} times Tab, and never on {name!r} of {self.path}")

    def type(self, *keys: str) -> None:
        """Press keys where the focus is."""
        self.driver.switch_to.active_element.send_keys(*keys)

    def refused(self, status: int) -> None:
        """Take off the console what the browser says of answers with this status."""
        left = [line for line in self.console() if f"a status of {status} " not in line]
        assert not left, left

    def _still(self, look: Callable[[], T]) -> T:
        """Look again where the page changes under the look."""
        from selenium.common.exceptions import WebDriverException

        while True:
            try:
                return look()
            except WebDriverException as exc:
                # Of these only the first has a type of its own.
                if not any(word in str(exc) for word in ("stale", "does not belong", "context")):
                    raise


START_SECONDS = 60.0


class Site(Server):
    """Django's own server, with its database and its log in `directory`.

    *users* are names with their permissions; None is a superuser.
    """

    def __init__(
        self, directory: Path, broker_url: str, users: Mapping[str, Sequence[str] | None]
    ) -> None:
        self.directory = directory
        self.port = free_port()
        self._broker_url = broker_url
        self._users = users

    def url(self, path: str = "/") -> str:
        """Where a browser finds it."""
        return f"http://127.0.0.1:{self.port}{path}"

    def start(self) -> None:
        """Start it with a new database, and wait until it takes connections."""
        environ = {
            "BROKER_URL": self._broker_url,
            "DJANGO_SETTINGS_MODULE": "tests.browser.shop.settings",
            "PYTHONPATH": os.pathsep.join(
                filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")])
            ),
            "PYTHONUNBUFFERED": "1",
            "SHOP_DATABASE": str(self.directory / "shop.sqlite3"),
        }
        module = "tests.browser.shop.serve"
        arguments = [sys.executable, "-m", module, str(self.port), json.dumps(dict(self._users))]
        self._process = spawn(arguments, environ=environ, log_path=self.log_path)
        self._wait_for_answer(START_SECONDS, f"the site on port {self.port}")

    def _answers(self) -> bool:
        return listens(self.port)


_NIGHT_SECONDS = 60.0


class Night:
    """Publishes, and waits until the worker has put all of it aside."""

    def __init__(self, shop: Celery, desk: Desk) -> None:
        self.shop = shop
        self.desk = desk

    def charges(self, count: int, first: int = 1000) -> list[str]:
        """So many charges, while the payments do not answer."""
        return self._publish("billing.charge", [(first + n, SECRET) for n in range(count)])

    def refunds(self, count: int, first: int = 500) -> list[str]:
        """So many refunds with an amount that is no number."""
        return self._publish("billing.refund", [(first + n, "12,50") for n in range(count)])

    def picture(self) -> str:
        """A picture that kills whoever looks at it."""
        return self._publish("images.resize", [("cats.png",)])[0]

    def count_twice(self, shelf: str) -> tuple[str, str]:
        """A count that does not end, and one that waits for the same shelf."""
        first = self._send("stock.count", shelf)
        # It runs before it has its object.
        wait_for(
            lambda: first in {one.holders[0].task_id for one in self.desk.objects.page().items},
            _NIGHT_SECONDS,
            "the first count to have the shelf",
        )
        second = self._send("stock.count", shelf)
        with suppress(AssertionError):
            wait_for(
                lambda: self.desk.tasks.get(second).why.kind is Wait.OBJECT,
                _NIGHT_SECONDS,
                "the second count to wait for the shelf",
            )
        why = self.desk.tasks.get(second).why
        assert why.kind is Wait.OBJECT, why
        return first, second

    def remind_later(self, seconds: float) -> str:
        """A reminder that waits for its time; it is called off after the test."""
        return self._send("mail.remind", 12, countdown=seconds)

    def _send(self, name: str, *args: object, **options: object) -> str:
        return str(self.shop.tasks[name].apply_async(args, **options).id)

    def mend(self) -> None:
        """Let the payments answer again."""
        self.shop.own.set(MENDED, 1)

    def charged(self) -> set[int]:
        """The orders that were charged."""
        return {int(order) for order in self.shop.own.smembers("charged")}

    def _publish(self, name: str, calls: list[tuple[object, ...]]) -> list[str]:
        before = self.desk.letters.count()
        task = self.shop.tasks[name]
        ids = [str(task.apply_async(call).id) for call in calls]
        wait_for(
            lambda: self.desk.letters.count() == before + len(ids),
            _NIGHT_SECONDS,
            f"{len(ids)} dead letters of {name}",
        )
        return ids

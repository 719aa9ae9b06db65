"""The shop's site, served by a process of its own on the loopback interface."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.processes import REPOSITORY
from tests.support.redis_server import free_port
from tests.support.serving import Server, spawn
from tests.support.waiting import listens

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

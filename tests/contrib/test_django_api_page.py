"""`docs/operations-api.rst`: each line is run against a live server, and its tables are true."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from threading import Thread
from types import ModuleType
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest
from celery import Celery
from django.apps import apps
from django.core.handlers.wsgi import WSGIHandler
from django.test.utils import override_settings

from celery_reliable.contrib.django.api import OPERATIONS, document_of
from celery_reliable.operations import DeadLetters, Desk
from tests.docs.blocks import Page

PAGES = ("operations-api.rst",)
PAGE = Page(*PAGES)
LINES = [line for line in PAGE.commands() if line.startswith("curl ")]
URLS, OWN, SETTINGS = (block.text for block in PAGE.of("python"))


class _Quiet(WSGIRequestHandler):
    def log_message(self, *args: object) -> None: ...


@pytest.fixture
def environ(
    celery_project: Celery, bill: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, str]]:
    """The page's project is served, by a thread of its own."""
    celery_project.amqp.queues.add("invoices")
    # Another thread asks for the app of the project.
    apps.get_app_config("celery_reliable").ready()
    said: dict[str, Any] = {}
    monkeypatch.setenv("DESK_TOKEN", "t0ken")
    for name, code in (("shop.desk", OWN), ("shop.urls", URLS)):
        module = ModuleType(name)
        exec(compile(code, name, "exec"), module.__dict__)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "shop", ModuleType("shop"))
    exec(compile(SETTINGS, "settings", "exec"), said)
    allowed = {"ROOT_URLCONF": "shop.urls", "ALLOWED_HOSTS": ["127.0.0.1"]}
    server = make_server("127.0.0.1", 0, WSGIHandler(), handler_class=_Quiet)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    with override_settings(CELERY_RELIABLE_API=said["CELERY_RELIABLE_API"], **allowed):
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}/reliable"
            yield {**os.environ, "URL": url, "TOKEN": "t0ken", "no_proxy": "127.0.0.1"}
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_every_line_is_answered(
    environ: dict[str, str], put: Callable[..., None], celery_project: Celery, desk: Desk
) -> None:
    letters = DeadLetters(celery_project)
    bill = celery_project.tasks["shop.bill"]
    for number, line in enumerate(LINES):
        put(f"letter-{number}")
        group = desk.letter_groups.all().groups[0].group
        before = desk.letters.count()
        is_of_letters = "dead-letter" in line
        task_id = f"letter-{number}" if is_of_letters else bill.delay().id
        said = line.replace("GROUP", group).replace("ID", task_id)

        ran = subprocess.run(
            ["bash", "-c", said + ' -w "\\n%{http_code}"'],
            env=environ,
            capture_output=True,
            text=True,
            timeout=60,
        )

        body, _, status = ran.stdout.rpartition("\n")
        assert status == "200", (line, ran.stdout, ran.stderr)
        assert json.loads(body)
        is_act = "--json" in line and "dry_run" not in line and "sweep" not in line
        done = json.loads(body).get("done", 1) if is_act else 0
        assert done or not is_act, line
        assert letters.count() == before - (done if is_of_letters else 0), line
    assert len(LINES) == 19
    assert {one.by for one in desk.audit()} == {"api:deploy"}


def test_every_address_is_told_of() -> None:
    found = {("POST" if one.is_act else "GET", one.path) for one in OPERATIONS}
    table = PAGE.text.partition("address  ")[2].partition("An id is")[0]
    told = re.findall(r"``(GET|POST) ([\w./-]+)``", table)

    assert set(told) == found | {("GET", "openapi.json")}


def test_every_status_is_told_of() -> None:
    paths = document_of("/", [])["paths"]
    known = {
        status
        for methods in paths.values()
        for one in methods.values()
        for status in one["responses"]
    }

    told = set(re.findall(r"^(\d{3})  ", PAGE.text, re.MULTILINE))
    # Of an address that has another method the document says nothing.
    assert told == (known - {"200"}) | {"405"}

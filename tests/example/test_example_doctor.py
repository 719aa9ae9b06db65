"""The example project passes its own tests; its doctor and Django's checks have nothing to say."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.conftest import StartRedis
from tests.docs.blocks import Page
from tests.example.conftest import EXAMPLE, Marked
from tests.integration.commands import run_celery
from tests.support.processes import run_python

CHECKS = [
    command.split()[1:] for command in Page("doctor.rst").commands() if "manage.py" in command
]
#: As `manage.py` does, for one command after the other.
MANAGE = """
import sys
from django.core.management import ManagementUtility
sys.path.insert(0, {folder!r})
for words in {commands!r}:
    ManagementUtility([*words, "--fail-level", "WARNING"]).execute()
from example.celery import app
print(app.finalized)
"""


def test_the_doctor_is_silent(start_redis: StartRedis, tmp_path) -> None:
    # What a power cut costs is told of any other.
    server = start_redis({"appendfsync": "always"})
    environ = {**os.environ, "BROKER_URL": server.url(), "PYTHONPATH": str(EXAMPLE)}

    ran = run_celery("reliable", "doctor", app="example", environ=environ, folder=tmp_path)

    assert (ran.code, ran.out, ran.err) == (0, "Nothing is wrong.\n", "")


def test_a_plain_check_asks_no_server_and_makes_no_task(tmp_path) -> None:
    """Celery runs it while a worker imports its tasks."""
    said = manage([one for one in CHECKS if "--deploy" not in one], "redis://127.0.0.1:1/0")

    assert said.stdout.endswith("\nFalse\n")
    assert "no issues" in said.stdout


def test_the_checks_of_a_deployment_ask_it(start_redis: StartRedis) -> None:
    checks = [one for one in CHECKS if "--tag" in one]
    server = start_redis({"appendfsync": "always"})

    said = manage(checks, server.url())

    assert "no issues" in said.stdout, said.stdout + said.stderr
    # Without the server there is no all-clear.
    assert "celery_reliable.W004" in manage(checks, "redis://127.0.0.1:1/0", code=1).stderr


def manage(commands: list[list[str]], url: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run commands of manage.py in one process."""
    assert commands
    program = MANAGE.format(folder=str(EXAMPLE), commands=commands)
    environ = {"BROKER_URL": url, "DJANGO_SETTINGS_MODULE": "example.settings"}
    return run_python("-c", program, environ=environ, code=code)


MANAGE_PY = str(EXAMPLE / "manage.py")


@pytest.mark.parametrize(
    "arguments",
    [
        ("test", "documents"),
        ("check", "--fail-level", "WARNING"),
        ("makemigrations", "--check", "--dry-run"),
    ],
    ids=lambda arguments: str(arguments[0]),
)
def test_the_example_passes_its_own_tests_and_djangos(
    marked: Marked, arguments: tuple[str, ...]
) -> None:
    assert marked.start(MANAGE_PY, *arguments).wait(timeout=120) == 0, marked.said()

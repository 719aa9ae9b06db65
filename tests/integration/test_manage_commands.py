"""What `manage.py` does in a project whose tasks cannot be published, or are not to be."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.django_project import DjangoProject
from tests.support.processes import run_python

FILES = {
    "manage.py": """
        import sys
        from django.core.management import execute_from_command_line
        execute_from_command_line(sys.argv)
    """,
    "proj/settings.py": """
        import os
        SECRET_KEY = "only for tests"
        USE_TZ = True
        INSTALLED_APPS = ["django.contrib.staticfiles", "django.contrib.contenttypes",
                          "django.contrib.auth", "celery_reliable.contrib.django", "shop"]
        DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3",
                                 "NAME": os.environ["FOLDER"] + "/db.sqlite3"}}
        DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
        STATIC_URL, STATIC_ROOT = "static/", os.environ["FOLDER"] + "/static"
        exec(os.environ["MORE"])
    """,
    "shop/__init__.py": "",
    "shop/tasks.py": """
        from celery import shared_task
        from celery_reliable import ReliableTask

        @shared_task(base=ReliableTask)
        def add(x, y):
            return x + y
    """,
}
COMMANDS = (
    ("migrate",),
    ("collectstatic", "--noinput"),
    ("shell", "-c", "pass"),
    ("check",),
)
PUBLISH = ("shell", "-c", "from shop.tasks import add; print('sum', add.delay(1, 2).get())")
AMQP = "CELERY_BROKER_URL = 'amqp://127.0.0.1:1//'"


Ran = subprocess.CompletedProcess[str]


def made(folder: Path, more: str) -> Callable[..., Ran]:
    """Make the project with some more settings; return what runs Python there."""
    project = DjangoProject(folder, FILES, environ={"MORE": more})
    return lambda *words: run_python(*words, code=None, folder=folder, environ=project.environ)


@pytest.mark.full
@pytest.mark.parametrize(
    ("more", "said"),
    [
        pytest.param(AMQP, "celery_reliable.E002", id="no ledger"),
        pytest.param("CELERY_BROKER_URL = 'redis://127.0.0.1:1/0'", "no issues", id="away"),
        pytest.param("CELERY_RELIABLE = {'MAX_LOSES': 3}", "celery_reliable.E001", id="misspelt"),
    ],
)
def test_no_command_is_stopped_that_publishes_nothing(tmp_path: Path, more: str, said: str) -> None:
    run = made(tmp_path, more)
    for command in COMMANDS:
        ran = run("manage.py", *command)
        assert not ran.returncode, ran.stderr
    assert said in ran.stdout + ran.stderr
    if said != "no issues":
        # Who wants to be stopped is: before a deployment.
        assert run("manage.py", "check", "--deploy").returncode


def test_eager_tasks_run_without_a_broker(tmp_path: Path) -> None:
    run = made(tmp_path, "CELERY_TASK_ALWAYS_EAGER = True")
    ran = run("manage.py", *PUBLISH)
    assert "sum 3" in ran.stdout, ran.stderr
    ran = run("manage.py", "check", "--deploy", "--tag", "celery_reliable_server")
    assert not ran.returncode, ran.stderr
    assert "celery_reliable.E002" not in ran.stdout + ran.stderr


@pytest.mark.parametrize(
    "more",
    [
        pytest.param(AMQP, id="no ledger"),
        pytest.param("CELERY_RELIABLE = {'MAX_LOSES': 3}", id="misspelt"),
        pytest.param(f"{AMQP}; CELERY_TASK_ALWAYS_EAGER = True", id="eager"),
    ],
)
def test_workers_and_publishers_refuse_what_cannot_work(tmp_path: Path, more: str) -> None:
    run = made(tmp_path, more)
    assert run("-m", "celery", "-A", "proj", "worker", "-P", "solo").returncode
    if "EAGER" not in more:
        assert "ConfigurationError" in run("manage.py", *PUBLISH).stderr

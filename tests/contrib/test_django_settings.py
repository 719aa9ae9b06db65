"""What Django's settings are to the package, what `manage.py check` says of them, and
what Celery gives tasks of a Django project.
"""

from __future__ import annotations

import textwrap
from io import StringIO

import pytest
from celery import Celery, current_app
from django.core.checks import run_checks
from django.core.management import call_command
from django.test.utils import override_settings

from celery_reliable.app import reliable_of
from celery_reliable.contrib.django import project
from celery_reliable.exceptions import ConfigurationError
from tests.support.processes import run_python


def found(**reliable: object) -> list[tuple[str, str]]:
    with override_settings(CELERY_RELIABLE=reliable):
        messages = run_checks()
    # The tests' own rows have a test of their own, below.
    return [
        (str(one.id), one.msg)
        for one in messages
        if "celery_reliable" in str(one.id) and one.id != "celery_reliable.W031"
    ]


def test_settings_that_nobody_would_read_are_told(celery_project: Celery, namespace: str) -> None:
    with override_settings(CELERY_RELIABLE_MAX_LOSSES=5):
        ((level, said),) = found()
        assert level == "celery_reliable.E001"
        assert "CELERY_RELIABLE_MAX_LOSSES" in said
        named = Celery("named", broker=celery_project.conf.broker_url, set_as_current=False)
        named.config_from_object("django.conf:settings", namespace="CELERY")
        with pytest.raises(ConfigurationError, match="CELERY_RELIABLE_MAX_LOSSES"):
            assert reliable_of(named).config


def test_the_settings_are_djangos_but_for_an_app_that_has_its_own(
    celery_project: Celery, namespace: str
) -> None:
    assert reliable_of(celery_project).config.namespace == namespace
    other = Celery("other", broker=celery_project.conf.broker_url, set_as_current=False)
    other.conf.reliable = {"NAMESPACE": "own"}
    assert reliable_of(other).config.namespace == "own"


def test_checks_of_a_project_without_an_app_look_at_the_settings_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Whatever was current when another test set Django up.
    monkeypatch.setattr(project, "_remembered", [])
    fallback = Celery("default", set_as_current=False)
    before = current_app._get_current_object()
    fallback.set_current()
    try:
        assert found() == []
        assert [one for one, _ in found(MAX_LOSSES=-1)] == ["celery_reliable.E001"]
    finally:
        before.set_current()


def test_a_project_needs_no_migration_of_ours() -> None:
    said = StringIO()

    call_command("makemigrations", "--check", "--dry-run", stdout=said)

    assert "No changes detected" in said.getvalue()


def test_rows_that_nobody_looks_after(celery_project: Celery) -> None:
    def told() -> list[str]:
        return [one.msg for one in run_checks() if one.id == "celery_reliable.W031"]

    (said,) = told()
    assert "shelf.Book" in said
    celery_project.conf.beat_schedule = {"rows": {"task": "celery_reliable.rows", "schedule": 60.0}}
    assert told() == []


# -- each way in which a project's modules come after one another

#: Each way in which a project's modules come after one another.
BEFORE = """
    import os
    os.environ["DJANGO_SETTINGS_MODULE"] = "any.settings"
    from celery_reliable import ReliableTask
    from celery import Celery, Task, shared_task
    app = Celery("proj", broker="redis://127.0.0.1:1")
"""
AS_TASK_CLASS = """
    import os
    from celery_reliable import ReliableTask
    from celery import Celery, Task, shared_task
    os.environ["DJANGO_SETTINGS_MODULE"] = "any.settings"
    app = Celery("proj", broker="redis://127.0.0.1:1", task_cls=ReliableTask)
"""
TASKS = """
    class Mixin:
        def apply_async_on_commit(self, *args, **kwargs):
            return "mine"

    class Base(Mixin, ReliableTask, Task):
        abstract = True

    class Written(ReliableTask):
        name = "proj.written"
        def run(self): ...

    @app.task(base=ReliableTask)
    def of_app(): ...

    @shared_task(base=Base)
    def shared(): ...

    tasks = [of_app, shared, app.register_task(Written())]
"""
ASK = """
    import sys, pickle
    print([hasattr(task, "delay_on_commit") for task in tasks], "django.db" in sys.modules)
"""
CALL = """
    from unittest import mock
    from celery.contrib.django.task import DjangoTask
    import django.db.transaction as transaction
    with mock.patch.object(transaction, "on_commit", lambda call: call()), \\
            mock.patch.object(ReliableTask, "apply_async", lambda *a, **k: print(a[1:], k)):
        tasks[0].delay_on_commit(1, two=2)
        tasks[2].apply_async_on_commit(args=(3,))
    print(tasks[1].apply_async_on_commit(), all(isinstance(t, DjangoTask) for t in tasks))
    passed_on = [pickle.loads(pickle.dumps(tasks[i])) for i in (0, 2)]
    print([task is app.tasks[task.name] for task in passed_on])
"""


def asked(*parts: str) -> list[str]:
    """Ask a fresh interpreter."""
    code = "\n".join(map(textwrap.dedent, parts))
    return run_python("-c", code, environ={"DJANGO_SETTINGS_MODULE": ""}).stdout.splitlines()


@pytest.mark.parametrize("order", [BEFORE, AS_TASK_CLASS])
def test_delay_on_commit_is_there_in_a_django_project(order: str) -> None:
    assert asked(order, TASKS, ASK, CALL) == [
        "[True, True, True] True",
        "((1,), {'two': 2}) {}",
        "() {'args': (3,)}",
        "mine True",
        "[True, True]",
    ]


def test_without_a_django_project_django_is_not_imported() -> None:
    plain = "\n".join(line for line in BEFORE.splitlines() if "os" not in line)
    assert asked(plain, TASKS, ASK) == ["[False, False, False] False"]

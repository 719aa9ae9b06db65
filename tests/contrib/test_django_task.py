"""What Celery gives tasks of a Django project is there with our base too."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from tests.support.processes import REPOSITORY

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
    inherited = {k: v for k, v in os.environ.items() if k != "DJANGO_SETTINGS_MODULE"}
    return subprocess.run(
        [sys.executable, "-c", "\n".join(map(textwrap.dedent, parts))],
        env={**inherited, "PYTHONPATH": str(REPOSITORY)},
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()


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

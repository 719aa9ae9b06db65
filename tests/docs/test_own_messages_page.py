"""`docs/guides/own-messages.rst`: the setting is that of a pool.  What it does is shown by
`tests/integration/test_shifts.py`.
"""

from __future__ import annotations

from celery import Celery
from celery.concurrency import get_implementation
from celery.concurrency.prefork import TaskPool as PreforkPool

from celery_reliable.pool import TaskPool
from tests.docs.blocks import Page

PAGES = ("guides/own-messages.rst",)


def test_the_setting_names_the_pool() -> None:
    page = Page(PAGES[0])
    app = Celery("proj")
    exec(page.block("worker_pool", "python").text, {"app": app})

    assert get_implementation(app.conf.worker_pool) is TaskPool
    assert issubclass(TaskPool, PreforkPool)
    assert page.left() == []

"""The API answers the same in a process of the web server that has served nothing yet."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path

import pytest

from tests.support.django_project import SETTINGS, DjangoProject
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.full

FILES = {
    "shop/__init__.py": "",
    "shop/tasks.py": """
        from celery import shared_task
        from celery_reliable import ReliableTask

        @shared_task(base=ReliableTask, at_most=2, on_conflict="wait", place="queued")
        def export(number): ...

        @shared_task(base=ReliableTask, object_id="account", unique="queued")
        def sync(account): ...
    """,
    "open.py": """
        import sys
        import django
        django.setup()
        from django.contrib.auth.models import User
        from django.test import Client

        client = Client()
        client.force_login(User.objects.get())
        for path in sys.argv[1:]:
            found = client.get(path)
            assert found.status_code == 200, (found.status_code, found.content)
        print(found.content.decode())
    """,
}
OWN = """
    ALLOWED_HOSTS = ["testserver"]
    INSTALLED_APPS += ["django.contrib.auth", "django.contrib.contenttypes",
        "django.contrib.sessions", "celery_reliable.contrib.django"]
    MIDDLEWARE = ["django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware"]
    ROOT_URLCONF = "celery_reliable.contrib.django.urls"
    CELERY_BROKER_URL = {url!r}
"""


def test_an_answer_does_not_depend_on_what_was_asked_before(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    settings = textwrap.dedent(SETTINGS).format(app="shop", name=str(tmp_path / "db.sqlite3"))
    settings += textwrap.dedent(OWN).format(url=redis_server.url())
    project = DjangoProject(tmp_path, {**FILES, "proj/settings.py": settings})
    project.migrate()
    project.run(
        "from django.contrib.auth.models import User\n"
        "User.objects.create(username='ann', is_superuser=True)\n"
        "from shop.tasks import export, sync\n"
        "sync.delay('acme')\n"
        "for number in range(3):\n"
        "    export.delay(number)"
    )

    for path in ("status", "tasks", "object?task=shop.tasks.sync&object_id=acme"):
        fresh = project.ran("open.py", f"/v1/{path}")
        after_others = project.ran("open.py", "/v1/orders", f"/v1/{path}")
        without_numbers = (re.sub(r"\d[\d.:]*", "#", one) for one in (fresh, after_others))
        assert len({*without_numbers}) == 1, path
        if path == "status":
            assert json.loads(fresh)["held_back"]["object"] == {"shop.tasks.export": 1}

"""A page of the desk is the same in a process of the web server that has served nothing yet."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.django_project import DjangoProject
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.full

FILES = {
    "proj/settings.py": """
        import os
        SECRET_KEY = "only for tests"
        USE_TZ = True
        ALLOWED_HOSTS = ["testserver"]
        INSTALLED_APPS = ["django.contrib.admin", "django.contrib.auth",
            "django.contrib.contenttypes", "django.contrib.sessions", "django.contrib.messages",
            "celery_reliable.contrib.django", "shop"]
        MIDDLEWARE = ["django.contrib.sessions.middleware.SessionMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
            "django.contrib.messages.middleware.MessageMiddleware"]
        TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates",
            "APP_DIRS": True, "OPTIONS": {"context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages"]}}]
        ROOT_URLCONF = "proj.urls"
        DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3",
                                 "NAME": os.environ["FOLDER"] + "/db.sqlite3"}}
        DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
        STATIC_URL = "static/"
        CELERY_BROKER_URL = os.environ["REDIS"]
    """,
    "proj/urls.py": """
        from django.contrib import admin
        from django.urls import include, path
        urlpatterns = [path("admin/", admin.site.urls),
                       path("api/", include("celery_reliable.contrib.django.urls"))]
    """,
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
        for page in sys.argv[1:]:
            found = client.get(page)
            assert found.status_code == 200, (found.status_code, found.content)
        print(found.content.decode())
    """,
}
LETTERS = "/admin/celery_reliable/deadletter/"
SHOWN = ("desk/", "tasks/", "objects/?task=shop.tasks.sync&id=acme", "orders/", "groups/", "")
WARM = "/api/v1/status"


@pytest.fixture
def project(tmp_path: Path, redis_server: RedisServer) -> DjangoProject:
    made = DjangoProject(tmp_path, FILES, environ={"REDIS": redis_server.url()})
    made.migrate()
    made.run(
        "from django.contrib.auth.models import User\n"
        "User.objects.create(username='ann', is_staff=True, is_superuser=True)\n"
        "from shop.tasks import export, sync\n"
        "sync.delay('acme')\n"
        "for number in range(3):\n"
        "    export.delay(number)"
    )
    return made


def without_numbers(page: str) -> str:
    page = re.sub(r'name="csrfmiddlewaretoken" value="\w+"', "", page)
    return re.sub(r"\d[\d.:]*( (ms|s|min)\b)?", "#", page)


def test_a_page_does_not_depend_on_what_was_opened_before(project: DjangoProject) -> None:
    for page in SHOWN:
        fresh = project.ran("open.py", LETTERS + page)
        after_others = project.ran("open.py", WARM, LETTERS + page)
        assert without_numbers(fresh) == without_numbers(after_others), page
        if page == "desk/":
            assert "1 of shop.tasks.export" in " ".join(fresh.split())

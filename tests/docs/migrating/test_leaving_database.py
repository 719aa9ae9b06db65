"""What the page about backing out says of a Django project's database."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from tests.docs.blocks import Page
from tests.support.django_project import DjangoProject

FORGET = Page("migrating/leaving.rst").block("ContentType").text
FILES = {
    "proj/settings.py": """
        import os
        from tests.support.admin_settings import *
        if "LEFT" in os.environ:
            INSTALLED_APPS.remove("celery_reliable.contrib.django")
        DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3",
                                 "NAME": os.environ["FOLDER"] + "/db.sqlite3"}}
        CELERY_BROKER_URL = "redis://127.0.0.1:1/0"
    """,
}
#: A user and a group that may do all, and what the admin notes of them.
USE = """\
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, Permission, User
from celery_reliable.contrib.django.models import DeadLetter
from django.contrib.contenttypes.models import ContentType

ours = Permission.objects.filter(content_type__app_label="celery_reliable")
user, group = User.objects.create(username="ann"), Group.objects.create(name="on call")
user.user_permissions.set(ours)
group.permissions.set(ours)
type_ = ContentType.objects.get_for_model(DeadLetter)
LogEntry.objects.create(user=user, content_type=type_, object_id="one", action_flag=2)
"""
COUNTS = (
    "select count(*) from django_content_type where app_label = 'celery_reliable'",
    """select count(*) from auth_permission
       where codename like '%deadletter' or codename in ('operate', 'see_arguments')""",
    "select count(*) from auth_user_user_permissions",
    "select count(*) from auth_group_permissions",
)


def test_nothing_of_the_package_stays_in_the_database(tmp_path: Path) -> None:
    project = DjangoProject(tmp_path, FILES)
    project.ran("-m", "django", "migrate")
    project.run(USE)

    def counts() -> list[int]:
        with closing(sqlite3.connect(tmp_path / "db.sqlite3")) as database:
            return [database.execute(one).fetchone()[0] for one in COUNTS]

    assert counts() == [1, 5, 5, 5]
    project.environ["LEFT"] = "1"
    # A migration without the app removes nothing.
    project.ran("-m", "django", "migrate")
    assert counts() == [1, 5, 5, 5]
    project.ran("-m", "django", "shell", "-c", FORGET)
    assert counts() == [0, 0, 0, 0]
    project.ran("-m", "django", "migrate")
    assert counts() == [0, 0, 0, 0]

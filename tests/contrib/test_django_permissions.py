"""Which of Django's permissions allows what; and `docs/operations-admin.rst` says so."""

from __future__ import annotations

import io
import json
import re

import pytest
from django.contrib.admin import AdminSite
from django.contrib.auth.models import AnonymousUser, Permission, User
from django.core.management import call_command

from celery_reliable.contrib.django import admin as desk
from celery_reliable.contrib.django.models import DeadLetter
from celery_reliable.contrib.django.project import NEEDED, may
from celery_reliable.operations import Right
from tests.docs.blocks import Page

#: By the codename that is granted: what grants of the first release allowed, and the new ones.
GRANTS = {
    "view_deadletter": {"view"},
    "change_deadletter": {"view", "replay"},
    "delete_deadletter": {"discard"},
    "operate": {"operate"},
    "see_arguments": {"see_arguments"},
}


def test_each_permission_allows_what_it_says() -> None:
    found = Permission.objects.filter(content_type__app_label="celery_reliable")
    assert {one.codename for one in found} == set(GRANTS)
    for permission in found:
        user = User.objects.create(username="granted")
        user.user_permissions.add(permission)
        allowed = {right.value for right in Right if may(user, right)}
        assert allowed == GRANTS[permission.codename]
        user.delete()


def test_a_superuser_may_everything_and_nobody_nothing() -> None:
    root = User(username="root", is_superuser=True)

    assert all(may(root, right) for right in Right)
    assert not any(may(AnonymousUser(), right) for right in Right)
    root.is_active = False
    assert not any(may(root, right) for right in Right)
    with pytest.raises(ValueError, match="everything"):
        may(root, "everything")


def test_the_model_without_a_table_is_in_nobody_s_way() -> None:
    """Such as who dumps a whole project."""
    out = io.StringIO()
    call_command("dumpdata", stdout=out)

    assert "celery_reliable.deadletter" not in {one["model"] for one in json.loads(out.getvalue())}
    assert list(DeadLetter.objects.all()) == []


# -- the page

PAGES = ("operations-admin.rst",)
PAGE = Page(*PAGES)


def test_each_right_is_told_with_its_permission() -> None:
    told = dict(re.findall(r"^``(\w+)`` +``(\w+)`` ", PAGE.text, re.MULTILINE))

    assert told == {one.value: NEEDED[one.value][0].partition(".")[2] for one in Right}


def test_each_page_is_told() -> None:
    told = re.findall(r"^``(\w+)`` ", PAGE.section("Pages"), re.MULTILINE)

    assert sorted(told) == sorted(one.name for one in desk.PAGES)


def test_the_block_registers_all_on_a_site_of_its_own() -> None:
    _, block = PAGE.of("python")
    site = AdminSite("mine")
    exec(block.text, {"my_site": site})

    urls = site.urls[0]
    names = {one.name for app in urls for one in getattr(app, "url_patterns", [])}
    assert {"celery_reliable_deadletter_overview", "celery_reliable_deadletter_changelist"} <= names

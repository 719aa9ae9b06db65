"""`docs/operations-admin.rst`: its tables are what is there, and its block runs."""

from __future__ import annotations

import re

from celery_reliable.contrib.django.permissions import NEEDED
from celery_reliable.operations import Right
from tests.support.processes import REPOSITORY

PAGES = ("operations-admin.rst",)
PAGE = (REPOSITORY / "docs" / "operations-admin.rst").read_text("utf-8")


def test_each_right_is_told_with_its_permission() -> None:
    told = dict(re.findall(r"^``(\w+)`` +``(\w+)`` ", PAGE, re.MULTILINE))

    assert told == {one.value: NEEDED[one][0].partition(".")[2] for one in Right}


def test_each_page_is_told() -> None:
    from celery_reliable.contrib.django.desk.registered import PAGES

    table = PAGE.partition("\nPages\n")[2].partition("\nActs on many\n")[0]
    told = re.findall(r"^``(\w+)`` ", table, re.MULTILINE)

    assert sorted(told) == sorted(one.name for one in PAGES)


def test_the_block_registers_all_on_a_site_of_its_own() -> None:
    from django.contrib.admin import AdminSite

    _, block = re.findall(r"code-block:: python\n\n((?:    .*\n|\n)+)", PAGE)
    site = AdminSite("mine")
    exec(re.sub(r"^    ", "", block, flags=re.MULTILINE), {"my_site": site})

    urls = site.urls[0]
    names = {one.name for app in urls for one in getattr(app, "url_patterns", [])}
    assert {"celery_reliable_deadletter_overview", "celery_reliable_deadletter_changelist"} <= names

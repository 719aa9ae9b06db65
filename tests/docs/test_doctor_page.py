"""The page of the doctor: its commands on a real server."""

from __future__ import annotations

import ast

from celery_reliable.settings import ReliableConfig, acl_rule
from tests.docs.blocks import Page, page_path, pages
from tests.docs.commands import run
from tests.integration.conftest import Project
from tests.support.redis_server import RedisServer

PAGES = ("doctor.rst",)
PAGE = Page(*PAGES)
COMMANDS = PAGE.commands("The doctor")
DJANGO = PAGE.commands("In a Django project")
SETTING = PAGE.block("GRACE_SECONDS", "python").text
#: How the pages begin to print a rule.
BEGIN = "ACL SETUSER app on >password "


def test_every_block_is_run() -> None:
    assert PAGE.left() == []
    # tests/example/test_example_doctor.py runs Django's.
    assert [one.split()[:3] for one in DJANGO] == [["python", "manage.py", "check"]] * 3


def test_the_commands_of_the_page(project: Project, redis_server: RedisServer) -> None:
    redis_server.client().config_set("appendfsync", "always")
    told = [run(command, project.app) for command in COMMANDS if command not in DJANGO]

    assert len(told) == 3
    assert {one.exit_code for one in told} == {0}, [one.output for one in told]


def test_the_setting_of_the_page() -> None:
    given = ast.literal_eval(SETTING.partition("=")[2].strip())

    assert ReliableConfig.from_mapping(given).grace_seconds == 30


def test_each_rule_for_a_user_of_redis_that_is_printed_is_the_one_of_the_package() -> None:
    printed = [
        (name, rule.partition("\n\n")[0].split())
        for name in pages()
        for rule in page_path(name).read_text("utf-8").split(BEGIN)[1:]
    ]

    assert printed
    for name, words in printed:
        assert words == list(acl_rule("reliable")), name

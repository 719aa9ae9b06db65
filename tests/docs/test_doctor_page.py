"""The page of the doctor: its commands on a real server, and a section for each code."""

from __future__ import annotations

import ast
import re

import pytest

from celery_reliable.doctor import CATALOGUE
from celery_reliable.settings import ReliableConfig, acl_rule
from tests.docs.blocks import Page, page_path, pages
from tests.docs.commands import run
from tests.integration.conftest import Project
from tests.support.processes import REPOSITORY
from tests.support.redis_server import RedisServer

PAGES = ("doctor.rst",)
PAGE = Page(*PAGES)
COMMANDS = PAGE.commands("The doctor")
DJANGO = PAGE.commands("In a Django project")
SETTING = PAGE.block("GRACE_SECONDS", "python").text
#: How the pages begin to print a rule.
BEGIN = "ACL SETUSER app on >password "
WORDS = " ".join(PAGE.text.split())


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


@pytest.mark.parametrize("entry", CATALOGUE, ids=lambda entry: entry.code)
def test_each_code_has_its_section(entry) -> None:
    assert f"\n.. _doctor-{entry.code.lower()}:\n\n{entry.code} ``{entry.name}``\n~" in PAGE.text
    assert f":If ignored: {entry.ignored} :To mend:" in WORDS


def test_no_section_is_of_a_code_that_there_is_not() -> None:
    assert re.findall(r"^([EW]\d{3}) ``", PAGE.text, re.MULTILINE) == [o.code for o in CATALOGUE]


def test_each_finding_of_the_package_about_a_set_up_is_in_the_catalogue() -> None:
    """By their names in the source, so that none can be told without what it costs to ignore it."""
    here = re.compile(r'"celery_reliable\.([a-z_]+)"')
    found = {
        name
        for folder in ("doctor", "settings", "compat")
        for path in (REPOSITORY / "celery_reliable" / folder).glob("*.py")
        for name in here.findall(path.read_text("utf-8"))
    }
    known = {entry.name for entry in CATALOGUE} | {"sweep", "rows"}

    assert len(found) > 30
    assert found - known == set()


def test_each_rule_for_a_user_of_redis_that_is_printed_is_the_one_of_the_package() -> None:
    printed = [
        (name, rule.partition("\n\n")[0].split())
        for name in pages()
        for rule in page_path(name).read_text("utf-8").split(BEGIN)[1:]
    ]

    assert printed
    for name, words in printed:
        assert words == list(acl_rule("reliable")), name

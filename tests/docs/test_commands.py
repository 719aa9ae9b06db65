"""What pages tell operators to type runs, and what they name is there."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import fields
from types import ModuleType

import pytest

from celery_reliable import ReliableConfig
from celery_reliable.app import reliable_of
from celery_reliable.findings import RUNNING
from celery_reliable.ledger import happenings
from celery_reliable.operations import Filter, Wait
from celery_reliable.orders import OrderKind
from celery_reliable.settings import acl_rule
from tests.docs.blocks import DOCS, Page, page_path, pages, run
from tests.integration.conftest import Project
from tests.integration.letters import put
from tests.support.processes import REPOSITORY
from tests.support.promises import promised

PAGES = (
    "doctor.rst",
    "faq.rst",
    "runbook.rst",
    "runbook-log.rst",
    "operations.rst",
    "operations-status.rst",
    "operations-letters.rst",
    "operations-live.rst",
)
LIMITS, DOCTOR = Page("limits.rst"), Page("doctor.rst")
INDEX, STATUS, LETTERS, LIVE = OPERATIONS = [Page(name) for name in PAGES[4:]]
READ = [DOCTOR, LIMITS, *(Page(name) for name in PAGES[1:4]), *OPERATIONS]
(IN_INDEX,), (IN_LETTERS,), (IN_LIVE,) = (page.of("python") for page in (INDEX, LETTERS, LIVE))
# tests/integration/desk/test_monitoring.py runs the probes.
STATUS.of("yaml")
TYPED = [command for page in READ for command in (*page.commands(), *page.inline())]
PROMISES = {one.name for one in promised()}

#: They go on until they are ended: by tests of their own.
ENDLESS = ("metrics --port 9809", "-A proj reliable")

#: What is written like a promise: a program, and settings of Redis.
OTHERS = {"celery-reliable-probe", "x-max-priority", "tcp-keepalive", "maxmemory-policy"}
#: How the pages begin to print a rule.
BEGIN = "ACL SETUSER app on >password "

#: Pages that name promises and settings.
NAMING = [
    path.relative_to(DOCS).as_posix()
    for path in sorted(DOCS.rglob("*.rst"))
    if path.parent.name in ("guides", "recipes") or path.name in ("faq.rst", "limits.rst")
]


def test_every_block_is_run() -> None:
    assert [one for page in READ for one in page.left()] == []
    # tests/example/test_example_doctor.py runs Django's, and tests/integration/desk these.
    others = {one.split()[0] for one in TYPED if not one.startswith("celery ")}
    assert others == {"python", "celery-reliable-probe", "eval"}


def test_every_command_runs(project: Project) -> None:
    commands = [
        command
        for command in TYPED
        if command.startswith("celery ") and not command.endswith(ENDLESS)
    ]
    assert len(commands) > 70
    put(project, "one")
    groups = run("celery -A proj reliable dead-letters groups --json", project.app)
    known = {"GROUP": json.loads(groups.output)["groups"][0]["group"], "TASK": "project.work"}
    orders = reliable_of(project.app).ledger.orders
    for number, command in enumerate(commands):
        # One before may have replayed all that there were.
        known["ID"] = f"letter-{number}"
        put(project, known["ID"])
        if " revoke " in command:
            known["ID"] = project.send("work", 0, countdown=3600).id
        if " resume " in command:
            known["ORDER"] = orders.give(OrderKind.PAUSE, "mail", by="ann", why="").id
        # They ask, as they should.
        command = re.sub("purge$", "purge --yes", command)
        command = re.sub("(revoke ID)$", r"\1 --yes", command)
        ran = run(command, project.app, known=known)
        # Nobody has swept, and this Redis may lose a second.
        expected = (0, 1) if "--check" in command or "doctor" in command else (0,)
        assert ran.exit_code in expected, (command, ran.output, ran.exception)


def test_the_blocks_of_operations(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = ModuleType("proj.celery")
    module.app = project.app  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "proj", ModuleType("proj"))
    monkeypatch.setitem(sys.modules, "proj.celery", module)
    put(project, "one")
    lost = {"name": "billing.charge", "attempt": 1}
    reliable_of(project.app).ledger.happenings.note("task_lost", lost)

    for block, said in (
        (IN_INDEX, "knows no task '4711'"),
        (IN_LETTERS, "1 project.work"),
        (IN_LIVE, "['attempt 1']\n"),
    ):
        exec(compile(block.text, block.page, "exec"), {})
        assert said in capsys.readouterr().out


def test_every_finding_every_kind_of_waiting_and_every_part_of_a_filter_is_told_of() -> None:
    told = set(re.findall(r"^([EW]\d{3}) +``(\w+)`` ", STATUS.text, re.MULTILINE))
    assert told == {(one.code, one.name) for one in RUNNING} | {("E005", "redis_evicts")}
    kinds = set(re.findall(r"^``(\w+)`` {2,}", STATUS.section("Tasks"), re.MULTILINE))
    assert kinds - {"kind"} == {kind.value for kind in Wait}
    parts = set(re.findall(r"^``--([\w-]+)`` ", LETTERS.text, re.MULTILINE)) - {"group"}
    names = {one.name.removesuffix("_seconds").replace("_", "-") for one in fields(Filter)}
    assert parts == names


@pytest.mark.parametrize("name", NAMING)
def test_a_page_names_promises_and_settings_that_there_are(name: str) -> None:
    text = Page(name).text
    named = set(re.findall(r"``([a-z]+(?:-[a-z0-9]+)+)``", text))
    assert named <= PROMISES | OTHERS
    # What is in capitals and no setting is Celery's state, a variable, or of an example.
    capitals = set(re.findall(r"``([A-Z]+(?:_[A-Z]+)+)``", text))
    assert capitals <= {*ReliableConfig.names(), "REMAP_SIGTERM"}


def test_so_much_is_kept() -> None:
    rows = re.findall(r"^   \* - (.+)\n     - (\d+)$", LIMITS.text, re.MULTILINE)
    config = ReliableConfig()
    lua = (REPOSITORY / "celery_reliable/ledger/lua/functions.lua").read_text("utf-8")
    (history,) = re.findall(r"#entries > (\d+)", lua)
    assert [int(most) for _, most in rows] == [
        config.dead_letter_max,
        config.dead_letter_seconds / 86400,
        config.keep_ended,
        config.sweep_batch,
        happenings._MOST,
        happenings._AT_ONCE,
        happenings._MOST_AUDITED,
        int(history),
    ]


def test_each_rule_for_a_user_of_redis_that_is_printed_is_the_one_of_the_package() -> None:
    printed = [
        (name, rule.partition("\n\n")[0].split())
        for name in pages()
        for rule in page_path(name).read_text("utf-8").split(BEGIN)[1:]
    ]

    assert printed
    for name, words in printed:
        assert words == list(acl_rule("reliable")), name

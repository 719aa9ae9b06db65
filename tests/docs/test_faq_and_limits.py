"""The answers and limits are about what there is: commands run, names and figures are true."""

from __future__ import annotations

import re

import pytest

from celery_reliable import ReliableConfig
from celery_reliable.ledger import happenings
from tests.docs.blocks import DOCS, Page
from tests.docs.commands import inline, run
from tests.integration.conftest import Project
from tests.integration.letters import put
from tests.support.processes import REPOSITORY
from tests.support.promises import promised

PAGES = ("faq.rst",)
FAQ, LIMITS = Page(*PAGES), Page("limits.rst")
COMMANDS = [*FAQ.commands(), *inline(FAQ.text), *inline(LIMITS.text)]
PROMISES = {one.name for one in promised()}

#: What is written like a promise: a program, and settings of Redis.
OTHERS = {"celery-reliable-probe", "x-max-priority", "tcp-keepalive", "maxmemory-policy"}

#: Pages that name promises and settings.
NAMING = [
    path.relative_to(DOCS).as_posix()
    for path in sorted(DOCS.rglob("*.rst"))
    if path.parent.name in ("guides", "recipes") or path.name in ("faq.rst", "limits.rst")
]


def test_every_command_runs(project: Project) -> None:
    assert len(COMMANDS) > 4
    put(project, "one")
    for command in COMMANDS:
        known = {"ID": project.send("work", 0).id if " revoke " in command else "one"}
        # They ask, as they should.
        command = re.sub("purge$", "purge --force", command)
        command = re.sub("(revoke .*)$", r"\1 --yes", command)
        ran = run(command, project.app, known=known)
        # Nobody has swept, and this Redis may lose a second.
        expected = (0, 1) if "doctor" in command else (0,)
        assert ran.exit_code in expected, (command, ran.output, ran.exception)


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
    told = {of: int(most) for of, most in rows}
    config = ReliableConfig()
    lua = (REPOSITORY / "celery_reliable/ledger/lua/lose.lua").read_text("utf-8")
    (history,) = re.findall(r"#history > (\d+)", lua)
    assert list(told.values()) == [
        config.dead_letter_max,
        config.dead_letter_seconds / 86400,
        config.keep_ended,
        config.sweep_batch,
        happenings._MOST,
        happenings._AT_ONCE,
        happenings._MOST_AUDITED,
        int(history),
    ]

"""`events`, lengths of time, completion, and dry runs, which change nothing at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import partial
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import click
import pytest
from celery.bin.celery import celery
from click.shell_completion import ShellComplete
from click.testing import Result

from celery_reliable.operations import KINDS, Desk, Filter
from celery_reliable.operations.cli import reliable
from tests.integration.commands import invoke
from tests.integration.conftest import Project
from tests.integration.letters import put
from tests.support.processes import REPOSITORY
from tests.support.redis_server import content_of

Run = Callable[..., Result]


@pytest.fixture
def run(project: Project) -> Run:
    return partial(invoke, project.app)


def note(desk: Desk, kind: str = "task_lost", **about: Any) -> None:
    assert desk.ledger.happenings.note(kind, about)


def test_events_lists_what_is_wanted(desk: Desk, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        note(desk, name="billing.charge\x1b[2J", id=f"id-{number}", attempt=1, losses=1)
    note(desk, "task_skipped", name="a", id="other", holder="id-1")

    listed = run("events")
    assert listed.exit_code == 0
    assert max(map(len, listed.output.splitlines())) <= 80
    assert "\x1b" not in listed.output
    assert "billing.charge\\x1b[2J" in listed.output
    assert "attempt 1, losses 1" in listed.output
    assert "holder id-1" in listed.output
    assert listed.output.endswith("\n4 events\n")
    told = json.loads(run("events", "--json", "--limit", "2").stdout)
    assert [one["task_id"] for one in told["items"]] == ["id-2", "other"]
    assert told["items"][1]["about"] == {"holder": "id-1"}

    def ids(*arguments: str) -> list[str]:
        return [
            one["task_id"]
            for one in json.loads(run("events", "--json", *arguments).stdout)["items"]
        ]

    assert ids("--kind", "task_skipped") == ["other"]
    assert ids("--task", "billing.*", "--since", "10m") == ["id-0", "id-1", "id-2"]
    assert ids("--kind", "task_lost", "--task", "other") == []
    assert run("events", "--kind", "no_such").exit_code == 2


def completed(*arguments: str, incomplete: str = "") -> list[str]:
    """What the shell is told for `celery -A proj reliable ARGUMENTS INCOMPLETE`."""
    asked = ShellComplete(celery, {"auto_envvar_prefix": "CELERY"}, "celery", "_CELERY_COMPLETE")
    found = asked.get_completions(["-A", "proj", "reliable", *arguments], incomplete)
    return [one.value for one in found]


def test_the_shell_completes_commands_options_and_values(tmp_path: Path) -> None:
    celery.add_command(reliable)
    assert set(reliable.commands) == set(completed())
    assert completed(incomplete="ev") == ["events"]
    assert completed("events", "--kind") == list(KINDS)
    assert completed("tasks", incomplete="--st") == ["--state"]
    assert "waiting" in completed("tasks", "--state")
    assert completed("dead-letters", "list", "--reason", incomplete="l") == ["lost"]

    # As the shell asks: without importing the app, whose module is not there.
    program = tmp_path / "celery"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nfrom celery.__main__ import main\nsys.exit(main())\n"
    )
    program.chmod(0o755)
    done = subprocess.run(
        [program],
        env={
            **os.environ,
            "PYTHONPATH": str(REPOSITORY),
            "_CELERY_COMPLETE": "bash_complete",
            "COMP_WORDS": "celery -A nowhere reliable tasks --state wa",
            "COMP_CWORD": "6",
        },
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == "plain,waiting\n"


def test_an_order_holds_for_as_long_as_is_said(desk: Desk, run: Run) -> None:
    def pause(said: str) -> int:
        return run("pause", "mail", "--later", "--for", said).exit_code

    for said, seconds in (("15m", 900), ("2h", 7200), ("90", 90), ("0.5", 0.5)):
        assert pause(said) == 0
        *_, order = desk.orders.all()
        assert order.until is not None
        assert order.given_at is not None
        held = order.until - order.given_at
        assert held.total_seconds() == pytest.approx(seconds, abs=0.005)
        desk.orders.resume([order.id], by="ann")
    for wrong in ("soon", "0", "-1", "15 min", "nan"):
        assert pause(wrong) == 2


def test_the_options_of_all_commands_stand_before_a_command_or_behind_it(run: Run) -> None:
    for words in (("--json", "orders"), ("orders", "--json")):
        assert json.loads(run(*words).output) == {"items": []}
    assert json.loads(run("--json", "dead-letters", "groups").output)["letters"] == 0
    assert run("--yes", "purge", "-Q", "celery").exit_code == 0
    assert run("purge", "-Q", "celery").exit_code == 1
    # Behind a "--" stands what a command is about.
    assert "knows no task '--json'" in run("show", "--", "--json").output


#: Tried by themselves: parts of a filter, which one of them stands for.
APART = {one.name for one in fields(Filter)} - {"task"}
LETTERS = ("letter-1", "letter-2")


def with_dry_run(group: click.Group, *path: str) -> Iterator[tuple[click.Command, list[str]]]:
    """Yield each command that has ``--dry-run``, with its words."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from with_dry_run(command, *path, name)
        elif any("--dry-run" in one.opts for one in command.params):
            yield command, [*path, name]


def words_of(option: click.Option, group: str) -> tuple[str, ...]:
    """Return an option as an operator writes it, with a value that can be taken."""
    flag = option.opts[0]
    if option.is_flag:
        return (flag,)
    if isinstance(option.type, click.Choice):
        return (flag, option.type.choices[0])
    if option.type.name in ("duration", "datetime"):
        return (flag, "1h" if option.type.name == "duration" else "2100-01-01T00:00:00Z")
    if option.type.name.startswith("json"):
        return (flag, "[]" if option.type.name == "json list" else "{}")
    named = {"--group": group, "--to-queue": "celery", "--workers": "w"}
    value = named.get(flag, "w" if option.type is click.STRING and option.multiple else "")
    return (flag, value or ("project.*" if option.type is click.STRING else "1"))


@pytest.mark.full
@pytest.mark.parametrize(("command", "path"), list(with_dry_run(reliable)))
def test_no_combination_of_options_lets_a_dry_run_act(
    project: Project,
    desk: Desk,
    run: Run,
    command: click.Command,
    path: list[str],
) -> None:
    for letter in LETTERS:
        put(project, letter)
    queued, parked = project.send("work", 0), project.send("work", 0, countdown=3600)
    # The index of groups is kept by its readers.
    (group,) = desk.letter_groups.all().groups
    ids = LETTERS if path[0] == "dead-letters" else (queued.id, parked.id)
    rest = [
        one
        for one in command.params
        if isinstance(one, click.Option) and "--dry-run" not in one.opts and one.name != "help"
    ]
    each = {one.name: words_of(one, group.group) for one in rest}
    others = [words for name, words in each.items() if name not in APART]
    subsets = chain.from_iterable(combinations(others, n) for n in range(len(others) + 1))
    given = [tuple(chain(*subset)) for subset in subsets]
    given += [words for name, words in each.items() if name in APART]
    client = project.redis.client()
    # Nobody hears it, and it expires.
    client.delete("{reliable:0}:bell")
    before = content_of(client)
    codes = set()
    for options in given:
        for named in ((), ids[:1], ids):
            told = run(*path, "--dry-run", *named, *options)
            words = " ".join((*path, "--dry-run", *named, *options))
            assert content_of(client) == before, words
            assert told.exit_code in (0, 2), f"{words}: {told.output}"
            assert told.exit_code == 2 or "would be" in told.output, words
            codes.add(told.exit_code)
    assert codes == {0, 2}


def test_one_id_obeys_the_options_that_many_obey(project: Project, desk: Desk, run: Run) -> None:
    put(project, LETTERS[0])
    project.send("work", 0)
    for act, *options in (
        ("replay", "--before", "2020-01-01T00:00:00Z"),
        ("discard", "--before", "2020-01-01T00:00:00Z", "--yes"),
    ):
        told = run("dead-letters", act, LETTERS[0], *options)
        assert told.exit_code == 0, told.output
        assert desk.letters.count() == 1

"""A dry run changes nothing, whatever stands beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import partial
from itertools import chain, combinations
from typing import Any

import click
import pytest
from click.testing import Result

from celery_reliable.operations import Desk, Filter
from celery_reliable.operations.cli import reliable
from celery_reliable.operations.cli.command import Duration
from tests.integration.commands import invoke
from tests.integration.conftest import Project
from tests.integration.letters import put

Run = Callable[..., Result]

#: Tried by themselves: parts of a filter, which one of them stands for, and how it is printed.
APART = {one.name for one in fields(Filter)} - {"task"} | {"as_json"}
LETTERS = ("letter-1", "letter-2")


def with_dry_run(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the words of each command that has ``--dry-run``."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from with_dry_run(command, (*path, name))
        elif any("--dry-run" in one.opts for one in command.params):
            yield (*path, name)


COMMANDS = tuple(with_dry_run(reliable))


def command_of(path: tuple[str, ...]) -> click.Command:
    found: Any = reliable
    for name in path:
        found = found.commands[name]
    return found  # type: ignore[no-any-return]


def words_of(option: click.Option, group: str) -> tuple[str, ...]:
    """Return an option as an operator writes it, with a value that can be taken."""
    flag = option.opts[0]
    if option.is_flag:
        return (flag,)
    if isinstance(option.type, click.Choice):
        return (flag, option.type.choices[0])
    if isinstance(option.type, (Duration, click.DateTime)):
        return (flag, "1h" if isinstance(option.type, Duration) else "2100-01-01T00:00:00Z")
    if option.type.name.startswith("json"):
        return (flag, "[]" if option.type.name == "json list" else "{}")
    named = {"--group": group, "--to-queue": "celery", "--workers": "w"}
    value = named.get(flag, "w" if option.type is click.STRING and option.multiple else "")
    return (flag, value or ("project.*" if option.type is click.STRING else "1"))


@pytest.fixture
def run(project: Project) -> Run:
    return partial(invoke, project.app)


@pytest.fixture
def everything(project: Project) -> Callable[[], dict[bytes, Any]]:
    """Return the whole content of the server's database: broker and ledger."""

    def read(pipe: Any, key: bytes, kind: bytes) -> None:
        {
            b"string": pipe.get,
            b"hash": pipe.hgetall,
            b"set": pipe.smembers,
            b"list": lambda key: pipe.lrange(key, 0, -1),
            b"zset": lambda key: pipe.zrange(key, 0, -1, withscores=True),
            b"stream": pipe.xrange,
        }[kind](key)

    def everything() -> dict[bytes, Any]:
        with project.redis.client() as client:
            keys = sorted(client.keys())
            pipe = client.pipeline(transaction=False)
            for key in keys:
                pipe.type(key)
            for key, kind in zip(keys, pipe.execute(), strict=True):
                read(pipe, key, kind)
            return dict(zip(keys, pipe.execute(), strict=True))

    return everything


@pytest.mark.full
@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_no_combination_of_options_lets_a_dry_run_act(
    project: Project,
    desk: Desk,
    run: Run,
    everything: Callable[[], dict[bytes, Any]],
    path: tuple[str, ...],
) -> None:
    for letter in LETTERS:
        put(project, letter)
    queued, parked = project.send("work", 0), project.send("work", 0, countdown=3600)
    # The index of groups is kept by its readers.
    (group,) = desk.letter_groups.all().groups
    ids = LETTERS if path[0] == "dead-letters" else (queued.id, parked.id)
    rest = [
        one
        for one in command_of(path).params
        if isinstance(one, click.Option) and "--dry-run" not in one.opts and one.name != "help"
    ]
    each = {one.name: words_of(one, group.group) for one in rest}
    others = [words for name, words in each.items() if name not in APART]
    subsets = chain.from_iterable(combinations(others, n) for n in range(len(others) + 1))
    given = [tuple(chain(*subset)) for subset in subsets]
    given += [words for name, words in each.items() if name in APART]
    before = everything()
    codes = set()
    for options in given:
        for named in ((), ids[:1], ids):
            told = run(*path, "--dry-run", *named, *options)
            words = " ".join((*path, "--dry-run", *named, *options))
            assert everything() == before, words
            assert told.exit_code in (0, 2), f"{words}: {told.output}"
            assert told.exit_code == 2 or "would be" in told.output or "--json" in options, words
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

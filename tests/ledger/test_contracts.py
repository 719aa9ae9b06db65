"""The scripts are what their headers, their callers and the ledger's README say of them."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from importlib import resources

import pytest

from celery_reliable.ledger import burials, locks, scripts, store, workers
from celery_reliable.ledger.keys import Keys
from celery_reliable.model import Reply, State
from tests.ledger.contracts import Contract

NAMES = scripts.names()
README = resources.files("celery_reliable.ledger").joinpath("README.rst").read_text("utf-8")


def contract(name: str) -> Contract:
    return Contract.of(name, scripts.script(name).text)


def calls() -> dict[str, tuple[int, int]]:
    """Each script that a method calls -> how many keys and arguments it hands over."""
    found = {}
    for module in (burials, store, workers, locks):
        source = resources.files("celery_reliable.ledger").joinpath(
            f"{module.__name__.rpartition('.')[2]}.py"
        )
        for node in ast.walk(ast.parse(source.read_text("utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Attribute(attr="call") | ast.Name(id="Step"),
                    args=[ast.Constant(value=str(name)), ast.List(keys), ast.List(args), *_],
                ):
                    found[name] = len(keys), len(args)
    return found


def readme_moves() -> dict[str, list[str]]:
    """The rows of the README's table of transitions: script -> moves."""
    table = README.partition("Transitions\n====")[2].partition("Keys\n====")[0]
    lines = table.splitlines()
    column = next(line.index("moves") for line in lines if line.startswith("script "))
    moves: dict[str, list[str]] = defaultdict(list)
    for line in lines:
        if match := re.match(r"``(\w+)`` ", line):
            moves[match[1]] += [line[column:]] if line[column:] else []
    return dict(moves)


@pytest.mark.parametrize("name", NAMES)
def test_header_and_body_agree(name: str) -> None:
    assert contract(name).faults() == []


@pytest.mark.parametrize("name", NAMES)
def test_its_method_hands_over_what_it_takes(name: str) -> None:
    script = contract(name)
    slots = len(script.slots("KEYS", in_header=True)), len(script.slots("ARGV", in_header=True))

    assert calls()[name] == slots


@pytest.mark.parametrize("name", NAMES)
def test_the_readme_has_its_moves(name: str) -> None:
    assert readme_moves()[name] == contract(name).moves()


def test_nothing_is_called_or_told_of_that_is_not_there() -> None:
    assert set(calls()) == set(NAMES)
    assert set(readme_moves()) == set(NAMES)


def test_every_reply_has_a_name_and_every_name_is_a_reply() -> None:
    given = {reply for name in NAMES for reply in contract(name).documented()}

    assert given == {reply.value for reply in Reply}


def test_every_state_is_in_the_drawing() -> None:
    drawing = README.partition("Transitions\n====")[0]

    assert [state.value for state in State if state.value not in drawing] == []


def test_every_kind_of_key_is_in_the_readme() -> None:
    keys = Keys("ns")
    kinds = [
        keys.record("<id>"),
        keys.due,
        keys.dead,
        keys.claims("<worker>"),
        keys.taken("<worker>"),
        keys.worker("<worker>"),
        keys.workers,
        keys.meta,
        keys.sweep,
        keys.lock("<object>"),
        keys.sent("<sender>"),
        keys.none,
    ]

    listed = re.findall(r"^``([^`]+)`` +(?:HASH|ZSET|STRING) ", README, re.MULTILINE)
    assert listed == [kind.removeprefix("{ns:0}:") for kind in kinds]
    assert len(kinds) == len([name for name in dir(Keys) if not name.startswith("_")])


# That the checks above can fail: each of these changes one thing in a sound script.


@pytest.mark.parametrize(
    ("name", "old", "new", "fault"),
    [
        ("settle", "found[3] ~= ARGV[3]", "found[3] ~= ARGV[2]", "ARGV"),
        ("settle", "redis.call('HDEL', KEYS[3], ARGV[1])\n", "", "KEYS"),
        ("settle", "ARGV[2]   attempt\n", "", "ARGV"),
        ("settle", "return {'settled'}", "return {'done'}", "replies"),
        ("settle", "return {'gone'}", "return {'gone', found[1]}", "reply gone"),
        ("settle", ' | {"gone"}', "", "replies"),
        ("settle", "settle: an attempt", "an attempt", "what it is for"),
        ("settle", "Cost  ", "Price ", "cost"),
        ("settle", "'DEL', KEYS[1]", "'DEL', 'task:' .. ARGV[1]", "no key"),
        ("settle", "'DEL', KEYS[1]", "'KEYS', KEYS[1]", "not for scripts"),
        ("settle", "redis.call('DEL', KEYS[1])", "redis.setresp(3)", "no plain command"),
        ("heartbeat", "reply[1] = 'forgotten'", "reply[1] = 'unheard_of'", "replies"),
    ],
)
def test_a_script_that_is_changed_in_one_thing_is_found(
    name: str, old: str, new: str, fault: str
) -> None:
    text = scripts.script(name).text
    assert old in text

    faults = Contract.of(name, text.replace(old, new, 1)).faults()

    assert any(fault in found for found in faults), faults


def test_moves_are_read_without_their_remarks() -> None:
    script = Contract.of(
        "x", "--[[\nx: y.\n\nMoves     a -> b   (why)\n          c(1) -> d\nKEYS[1]   k\n]]\n"
    )

    assert script.moves() == ["a -> b", "c(1) -> d"]

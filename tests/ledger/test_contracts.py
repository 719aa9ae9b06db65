"""The scripts are what their headers, their callers and the ledger's README say of them."""

from __future__ import annotations

import ast
import inspect
import pkgutil
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import fields
from importlib import import_module, resources
from types import ModuleType
from typing import Any, get_args, get_type_hints

import pytest

from celery_reliable import ledger
from celery_reliable.ledger import answers, scripts
from celery_reliable.ledger.answers.base import Answer
from celery_reliable.ledger.answers.objects import OtherObject, Ripe
from celery_reliable.ledger.answers.tasks import Batch, Troubled
from celery_reliable.ledger.answers.workers import Beat
from celery_reliable.ledger.keys import Keys
from celery_reliable.ledger.transitions import Transition
from celery_reliable.model import State
from tests.ledger.contracts import Contract, text_of

NAMES = scripts.names()
README = resources.files("celery_reliable.ledger").joinpath("README.rst").read_text("utf-8")


def contract(name: str) -> Contract:
    return Contract.read(name)


def modules() -> list[ModuleType]:
    """The modules of the ledger."""
    found = pkgutil.iter_modules(ledger.__path__, ledger.__name__ + ".")
    return [import_module(one.name) for one in found]


def transitions() -> dict[str, list[Transition[Any]]]:
    """Script -> what the ledger makes of its answers, for each way of calling it."""
    found = defaultdict(list)
    for module in modules():
        for value in vars(module).values():
            if isinstance(value, Transition):
                found[value.name].append(value)
    return dict(found)


def calls() -> dict[str, tuple[int, int]]:
    """Each script that a method calls -> how many keys and arguments it hands over."""
    found = {}
    for module in modules():
        named = {key: v.name for key, v in vars(module).items() if isinstance(v, Transition)}
        for function in ast.walk(ast.parse(inspect.getsource(module))):
            if not isinstance(function, ast.FunctionDef):
                continue
            for node in ast.walk(function):
                match node:
                    case ast.Call(
                        func=ast.Attribute(attr="call") | ast.Name(id="Step"),
                        args=[ast.Name(id=name), ast.List(keys), ast.List(args), *_],
                    ):
                        n_more = n_args = 0
                    case ast.Call(
                        func=ast.Name(id="call_freeing_lock"),
                        args=[_, _, ast.Name(id=name), ast.List(keys), ast.List(args)],
                    ):
                        # A lock, and the object that it is of.
                        n_more = n_args = 1
                    case ast.Call(
                        func=ast.Name(id="call_ending_task"),
                        args=[_, _, ast.Name(id=name), ast.List(keys), ast.List(args)],
                    ):
                        # The same, and what happened to the task: where it is kept, and three
                        # things about it.
                        n_more, n_args = 3, 4
                    case _:
                        continue
                # What follows in any number has no numbers.
                keys = [one for key in keys for one in expanded(key)]
                keys = [one for one in keys if not isinstance(one, ast.Starred)]
                args = [one for one in args if not isinstance(one, ast.Starred)]
                for script in [named[name]] if name in named else given(module, function):
                    found[script] = len(keys) + n_more, len(args) + n_args
    return found


def expanded(key: ast.expr) -> list[ast.expr]:
    """The keys that stand in a list of keys: one, or those that only some callers give."""
    match key:
        case ast.Starred(ast.IfExp(body=ast.List(elts))):
            return elts
        case _:
            return [key]


def given(module: ModuleType, function: ast.FunctionDef) -> set[str]:
    """The scripts of the transitions that a module hands to one of its methods."""
    calls = re.findall(rf"self\.{function.name}\(\s*(_[A-Z_]+),", inspect.getsource(module))
    return {vars(module)[name].name for name in calls}


def shapes(kinds: Iterable[type[Answer]]) -> dict[str, int | None]:
    """The words of answers -> how many values come with each; None: any number."""
    return {
        kind.word: None if issubclass(kind, Batch | Beat | Ripe) else len(fields(kind))
        for kind in kinds
    }


def type_faults(script: Contract, found: list[Transition[Any]]) -> list[str]:
    """Where the header and the types of the answers disagree."""
    kinds = {kind for one in found for kind in one.kinds}
    faults = []
    if len(shapes(kinds)) != len(kinds):
        faults.append("two types for one reply")
    if shapes(kinds) != script.documented():
        faults.append(f"header has {script.documented()}, the types are {shapes(kinds)}")
    return faults


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


@pytest.mark.parametrize("name", NAMES)
def test_each_reply_is_one_type_with_its_values(name: str) -> None:
    assert type_faults(contract(name), transitions()[name]) == []


@pytest.mark.parametrize("name", NAMES)
def test_what_a_repeated_call_means_is_an_answer_of_that_script(name: str) -> None:
    for one in transitions()[name]:
        assert set(one.repeated) <= set(one.kinds)


def test_every_transition_is_typed_as_what_it_reads() -> None:
    """What mypy cannot see: the union that is given at run time is that of the annotation."""
    seen = 0
    for module in modules():
        hints = get_type_hints(module)
        for name, value in vars(module).items():
            if isinstance(value, Transition):
                (union,) = get_args(hints[name])
                # The others are heard by those who call the script, and call it again.
                heard = set(value.kinds) - {OtherObject, Troubled}
                assert set(get_args(union) or (union,)) == heard, name
                seen += 1
    assert seen >= len(NAMES)


def test_every_type_of_answer_is_given_by_a_script() -> None:
    given = {kind for name in NAMES for one in transitions()[name] for kind in one.kinds}
    classes = {v for v in vars(answers).values() if isinstance(v, type) and issubclass(v, Answer)}

    assert classes - given == {Answer, Beat}


def test_every_state_is_in_the_drawing() -> None:
    drawing = README.partition("Transitions\n====")[0]

    assert [state.value for state in State if state.value not in drawing] == []


def test_every_kind_of_key_is_in_the_readme() -> None:
    keys = Keys("ns")
    kinds = [
        keys.record("<id>"),
        keys.due,
        keys.dead,
        keys.audit,
        keys.happened,
        keys.minutes,
        keys.grouped,
        keys.groups,
        keys.ended,
        keys.ended_at,
        keys.orders,
        keys.ordered,
        keys.claims("<worker>"),
        keys.taken("<worker>"),
        keys.stops("<worker>"),
        keys.worker("<worker>"),
        keys.workers,
        keys.direct,
        keys.unplaced,
        keys.runs,
        keys.run("<run>"),
        keys.meta,
        keys.sweep,
        keys.lock("<object>"),
        keys.waiting("<object>"),
        keys.sent("<sender>"),
        keys.rate("<key>"),
        keys.line("<task>"),
        keys.pacer("<app>"),
        keys.none,
    ]

    listed = re.findall(r"^``([^`]+)`` +(?:HASH|ZSET|STREAM|STRING) ", README, re.MULTILINE)
    assert listed == [kind.removeprefix("{ns:0}:") for kind in kinds]
    assert len(kinds) == len([name for name in dir(Keys) if not name.startswith("_")])


# That the checks above can fail: each of these changes one thing in a sound script.


@pytest.mark.parametrize(
    ("name", "old", "new", "fault"),
    [
        ("place", "KEYS[6...]", "further", "any number"),
        ("settle", "found[3] ~= ARGV[3]", "found[3] ~= ARGV[2]", "ARGV"),
        ("settle", "redis.call('HDEL', KEYS[3], ARGV[1])\n", "", "KEYS"),
        ("settle", "ARGV[2]   attempt\n", "", "ARGV"),
        ("settle", "return {'settled'}", "return {'done'}", "replies"),
        ("settle", "return {'gone'}", "return {'gone', found[1]}", "reply gone"),
        ("settle", ' | {"gone"}', "", "replies"),
        ("settle", "settle: an attempt", "an attempt", "what it is for"),
        ("settle", "Cost  ", "Price ", "cost"),
        ("settle", "'DEL', KEYS[1]", "'DEL', 'task:' .. ARGV[1]", "no key"),
        ("group", "ARGV[3...]", "further", "any number"),
        ("group", "i = 3, #ARGV", "i = 3, 5", "any number"),
        ("settle", "'DEL', KEYS[1]", "'KEYS', KEYS[1]", "not for scripts"),
        ("settle", "redis.call('DEL', KEYS[1])", "redis.setresp(3)", "no plain command"),
        ("heartbeat", "reply[1] = 'forgotten'", "reply[1] = 'unheard_of'", "replies"),
    ],
)
def test_a_script_that_is_changed_in_one_thing_is_found(
    name: str, old: str, new: str, fault: str
) -> None:
    text = text_of(name)
    assert old in text

    faults = Contract.of(name, text.replace(old, new, 1)).faults()

    assert any(fault in found for found in faults), faults


def test_moves_are_read_without_their_remarks() -> None:
    script = Contract.of(
        "x", "--[[\nx: y.\n\nMoves     a -> b   (why)\n          c(1) -> d\nKEYS[1]   k\n]]\n"
    )

    assert script.moves() == ["a -> b", "c(1) -> d"]


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("settle", ' | {"elsewhere"}', ""),
        ("settle", '{"fenced", state}', '{"fenced"}'),
        ("settle", '{"settled"}', '{"done"}'),
        ("claim", '{"claimed", attempt, losses}', '{"claimed", attempt}'),
        ("heartbeat", '{"renewed", version, now_ms, stops, id, claim, ...}', '{"renewed", id}'),
    ],
)
def test_a_header_that_is_changed_is_not_what_the_types_say(name: str, old: str, new: str) -> None:
    text = text_of(name)
    assert old in text

    assert type_faults(Contract.of(name, text.replace(old, new, 1)), transitions()[name])

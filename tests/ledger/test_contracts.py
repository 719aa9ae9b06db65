"""Scripts use the keys and arguments that their headers list, by bounded commands alone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import resources
from typing import Any

import pytest

from celery_reliable.ledger.scripts import FUNCTIONS, header, names
from tests.support import stubs

#: All that scripts may do: bounded commands on keys that they were given, or made of those.
ALLOWED_COMMANDS = {
    "DEL", "EXISTS", "GET", "HDEL", "HEXISTS", "HGET", "HGETALL", "HINCRBY", "HLEN", "HMGET",
    "HSET", "INFO", "LLEN", "LPUSH", "PEXPIRE", "PTTL", "PUBLISH", "RPOP", "RPUSH", "SADD",
    "SELECT", "SET", "SREM", "TIME", "XADD", "XREVRANGE", "ZADD", "ZCARD", "ZLEXCOUNT",
    "ZRANGE", "ZRANGEBYSCORE", "ZREM", "ZSCORE",
}  # fmt: skip
KEYLESS_COMMANDS = {"INFO", "SELECT", "TIME"}


def sources(package: str) -> dict[str, str]:
    """The files of all scripts of a package, by their names."""
    files = resources.files(f"celery_reliable.{package}").joinpath("lua").iterdir()
    return {file.name.removesuffix(".lua"): file.read_text("utf-8") for file in files}


_FUNCTION = re.compile(r"^local function (\w+)\((.*?)\)\n.*?^end$", re.MULTILINE | re.DOTALL)
#: A key that a script was given, or one that is made of what all keys begin with.
_KEY = r"KEYS\.\w+|KEYS\.ledger \.\. .+"


def without_comments(text: str) -> str:
    return re.sub(r"--[^\n]*", "", text)


def shared() -> dict[str, str]:
    """The functions that scripts of the ledger share, by their names."""
    text = without_comments(sources("ledger")[FUNCTIONS].partition("\n]]\n")[2])
    return {found[1]: found[0] for found in _FUNCTION.finditer(text)}


def keys_made(text: str) -> set[str]:
    """The names in a function or a body that stand for keys."""
    found = set()
    for left, right in re.findall(r"^ *local ([\w, ]+) = (.*KEYS.*)$", text, re.MULTILINE):
        for name, value in zip(left.split(", "), right.split(", "), strict=False):
            if re.fullmatch(rf"(?:\S+ and )?(?:{_KEY})", value):
                found.add(name)
    return found


@dataclass(frozen=True)
class Contract:
    """A script, divided into its header comment and its body, with the functions that it calls."""

    header: str
    body: str
    functions: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str, functions: dict[str, str]) -> Contract:
        match = re.fullmatch(r"--\[\[\n(.*?)\n\]\]\n(.*)", text, re.DOTALL)
        assert match, "it does not begin with its header"
        body = all_ = without_comments(match[2])
        called: list[str] = []
        # Those behind are called by none before.
        for name, function in reversed(functions.items()):
            if re.search(rf"\b{name}\(", all_):
                called.append(function)
                all_ += function
        if re.search(r"\bnow_[mu]s\b", body) and functions:
            called.append(functions["clock"])
        return cls(match[1], body, tuple(called))

    @staticmethod
    def commands(text: str) -> list[tuple[str, str]]:
        """Every command of a function or a body with its first argument as written."""
        return re.findall(r"redis\.p?call\('(\w+)'(?:,\s*([^,)]+))?", text)

    def faults(self) -> list[str]:
        """Where the header and the body disagree, or the body does what no script may."""
        faults = [
            f"no {title}"
            for title in ("Returns", "Cost")
            if not re.search(rf"^{title} +\S", self.header, re.MULTILINE)
        ]
        for kind in ("KEYS", "ARGV"):
            listed = re.findall(rf"^{kind}\.(\w+)\??(\.\.\.)?", self.header, re.MULTILINE)
            names = {name for name, rest in listed if not rest}
            used = set(re.findall(rf"\b{kind}\.(\w+)", "".join((self.body, *self.functions))))
            # What all keys begin with is the first one of each script of the ledger.
            if names != (used if "ledger" in names else used - {"ledger"}):
                faults.append(f"{kind}: header has {listed}, body uses {used}")
            if len(listed) != len({name for name, _ in listed}):
                faults.append(f"{kind}: one has two lines")
            if re.search(rf"\b{kind}\[\d+\]", self.body):
                faults.append(f"{kind} by number")
        return [
            *faults,
            *(one for text in (self.body, *self.functions) for one in self._uses(text)),
        ]

    def _uses(self, text: str) -> list[str]:
        """Return what a function, or the body, does with other keys or that no script may do."""
        has_more = re.search(r"^KEYS\.\w+\.\.\.", self.header, re.MULTILINE)
        listed = r"KEYS\[\w+( \+ 1)?\]|unacked" if has_more else "unacked"
        # A function may be told of a record by its key.
        faults, made = (
            [],
            keys_made(text) | set(re.findall(r"^local function .*\b(record)\b", text)),
        )
        for command, first in self.commands(text):
            if command not in ALLOWED_COMMANDS:
                faults.append(f"{command} is not for scripts")
            elif command in KEYLESS_COMMANDS:
                continue
            elif first not in made and not re.fullmatch(f"{_KEY}|{listed}", first):
                faults.append(f"{command} on {first}, which is no key that it was given")
        # What the pattern above does not read must not be there.
        unread = re.sub(r"redis\.call\(ARGV\.command, KEYS\.|redis\.sha1hex\(", "", text)
        if len(re.findall(r"redis\.", unread)) != len(self.commands(text)):
            faults.append("a use of redis that is no plain command")
        return faults


def test_one_word_has_the_same_fields_wherever_it_is_replied() -> None:
    fields: dict[str, set[Any]] = {}
    for name in names():
        for word, of in header(name).replies.items():
            fields.setdefault(word, set()).add(of)

    assert {word for word, found in fields.items() if len(found) > 1} == set()


def test_type_checkers_see_what_the_headers_say() -> None:
    for path, text in stubs.stubs().items():
        assert path.read_text() == text, "python -m tests.support.stubs"


SOUND = """\
--[[
KEYS.record   task:<id>   HASH
ARGV.attempt
Returns   {"done"}
Cost      O(1)
]]
if redis.call('HGET', KEYS.record, 'attempt') == ARGV.attempt then
  redis.call('DEL', KEYS.record)
end
"""


def test_header_and_body_agree() -> None:
    functions = shared()
    of_ledger = {name: text for name, text in sources("ledger").items() if name != FUNCTIONS}
    found = {f"ledger/{name}": Contract.of(text, functions) for name, text in of_ledger.items()}
    of_broker = sources("broker")
    found |= {f"broker/{name}": Contract.of(text, {}) for name, text in of_broker.items()}
    for name, text in (of_ledger | of_broker).items():
        assert text.startswith(f"--[[\n{name}: ")
    # All that is shared, somebody calls.
    assert {one for contract in found.values() for one in contract.functions} == {
        *functions.values()
    }

    faults = {name: set(contract.faults()) for name, contract in found.items()}

    # Which list a message goes into, its record says.
    into = {f"{one} on told[1], which is no key that it was given" for one in ("LPUSH", "RPUSH")}
    assert {name: left for name, all_ in faults.items() if (left := all_ - into)} == {}
    assert into <= faults["ledger/wake"]
    assert Contract.of(SOUND, {}).faults() == []


def test_functions_are_told_of_records_by_their_keys() -> None:
    texts = "".join(without_comments(text) for text in sources("ledger").values())
    for name, told in re.findall(r"^local function (\w+)\((.*?)\)", texts, re.MULTILINE):
        at = told.split(", ").index("record") if "record" in told else None
        for call in re.findall(rf"(?<!function )\b{name}\((.*)", texts) if at is not None else ():
            given = re.split(r", |\)", call)[at]
            assert given == "record" or re.fullmatch(_KEY, given), call


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("== ARGV.attempt", "== ARGV.id", "ARGV"),
        ("== ARGV.attempt", "== ARGV[1]", "by number"),
        ("KEYS.record   task:<id>   HASH\n", "", "KEYS"),
        ("'DEL', KEYS.record", "'DEL', 'task:' .. ARGV.attempt", "no key"),
        ("'DEL', KEYS.record", "'DEL', record", "no key"),
        ("'DEL', KEYS.record", "'KEYS', KEYS.record", "not for scripts"),
        ("redis.call('DEL', KEYS.record)", "redis.setresp(3)", "no plain command"),
        ("Cost      O(1)\n", "", "no Cost"),
    ],
)
def test_a_script_that_is_changed_in_one_thing_is_found(old: str, new: str, fault: str) -> None:
    assert old in SOUND

    faults = Contract.of(SOUND.replace(old, new, 1), {}).faults()

    assert any(fault in found for found in faults), faults

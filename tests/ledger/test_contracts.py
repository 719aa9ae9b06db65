"""Scripts use the keys and arguments that their headers list, by bounded commands alone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import resources
from typing import Any

import pytest

from celery_reliable.ledger.headers import header
from celery_reliable.ledger.scripts import names
from tests.support import stubs

#: All that scripts may do: bounded commands on keys that they were given.
ALLOWED_COMMANDS = {
    "DEL", "EXISTS", "GET", "HDEL", "HEXISTS", "HGET", "HGETALL", "HINCRBY", "HLEN", "HMGET",
    "HSET", "INFO", "LLEN", "LPUSH", "PEXPIRE", "PTTL", "PUBLISH", "RPOP", "RPUSH", "SADD",
    "SELECT", "SET", "SREM", "TIME", "XADD", "XREVRANGE", "ZADD", "ZLEXCOUNT", "ZRANGE",
    "ZRANGEBYSCORE", "ZREM", "ZSCORE",
}  # fmt: skip
KEYLESS_COMMANDS = {"INFO", "SELECT", "TIME"}


def sources(package: str) -> dict[str, str]:
    """The files of all scripts of a package, by their names."""
    files = resources.files(f"celery_reliable.{package}").joinpath("lua").iterdir()
    return {file.name.removesuffix(".lua"): file.read_text("utf-8") for file in files}


@dataclass(frozen=True)
class Contract:
    """A script, divided into its header comment and its body."""

    header: str
    body: str

    @classmethod
    def read(cls, name: str) -> Contract:
        """Return that of one of the ledger's scripts, also where calls are recorded."""
        return cls.of(sources("ledger")[name])

    @classmethod
    def of(cls, text: str) -> Contract:
        match = re.fullmatch(r"--\[\[\n(.*?)\n\]\]\n(.*)", text, re.DOTALL)
        assert match, "it does not begin with its header"
        return cls(match[1], re.sub(r"--[^\n]*", "", match[2]))

    def commands(self) -> list[tuple[str, str]]:
        """Every command of the body with its first argument as written."""
        return re.findall(r"redis\.p?call\('(\w+)'(?:,\s*([^,)]+))?", self.body)

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
            used = set(re.findall(rf"\b{kind}\.(\w+)", self.body))
            if kind == "KEYS" and re.search(r"\bnow_[mu]s\b", self.body):
                used.add("clock")
            if kind == "KEYS" and "wait_until(" in self.body:
                used |= {"due", "later", "bell"}
            if names != used or len(listed) != len({name for name, _ in listed}):
                faults.append(f"{kind}: header has {listed}, body uses {used}")
            if re.search(rf"\b{kind}\[\d+\]", self.body):
                faults.append(f"{kind} by number")
        has_more = re.search(r"^KEYS\.\w+\.\.\.", self.header, re.MULTILINE)
        own = r"KEYS(\.\w+|\[\w+( \+ 1)?\])|unacked" if has_more else r"KEYS\.\w+|unacked"
        for command, first in self.commands():
            if command not in ALLOWED_COMMANDS:
                faults.append(f"{command} is not for scripts")
            elif command not in KEYLESS_COMMANDS and not re.fullmatch(own, first):
                faults.append(f"{command} on {first}, which is no key that it was given")
        # What the pattern above does not read must not be there.
        unread = re.sub(r"redis\.call\(ARGV\.command, KEYS\.|redis\.sha1hex\(", "", self.body)
        if len(re.findall(r"redis\.", unread)) != len(self.commands()):
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
    texts = {
        f"{package}/{name}": text
        for package in ("ledger", "broker")
        for name, text in sources(package).items()
    }
    found = {name: Contract.of(text).faults() for name, text in texts.items()}
    assert all(text.startswith(f"--[[\n{name.partition('/')[2]}: ") for name, text in texts.items())

    # Their headers say which keys they make.
    made = {
        one.split(",")[0] for of in ("claim", "resume", "wake") for one in found.pop(f"ledger/{of}")
    }
    assert made == {"LPUSH on told[3]", "RPUSH on limited[i][1]"} | {
        *(f"{command} on record" for command in ("HGET", "HMGET", "HDEL", "HSET")),
        *(f"{command} on KEYS.locks .. place" for command in ("GET", "SET")),
    }
    assert {name: faults for name, faults in found.items() if faults} == {}
    assert Contract.of(SOUND).faults() == []


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("== ARGV.attempt", "== ARGV.id", "ARGV"),
        ("== ARGV.attempt", "== ARGV[1]", "by number"),
        ("KEYS.record   task:<id>   HASH\n", "", "KEYS"),
        ("'DEL', KEYS.record", "'DEL', 'task:' .. ARGV.attempt", "no key"),
        ("'DEL', KEYS.record", "'KEYS', KEYS.record", "not for scripts"),
        ("redis.call('DEL', KEYS.record)", "redis.setresp(3)", "no plain command"),
        ("Cost      O(1)\n", "", "no Cost"),
    ],
)
def test_a_script_that_is_changed_in_one_thing_is_found(old: str, new: str, fault: str) -> None:
    assert old in SOUND

    faults = Contract.of(SOUND.replace(old, new, 1)).faults()

    assert any(fault in found for found in faults), faults

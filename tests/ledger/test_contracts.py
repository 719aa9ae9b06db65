"""Scripts use the keys and arguments that their headers list, by bounded commands alone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import resources

import pytest

from celery_reliable.ledger import scripts

#: All that scripts may do: bounded commands on keys that they were given.
ALLOWED_COMMANDS = {
    "DEL", "EXISTS", "GET", "HDEL", "HGET", "HGETALL", "HINCRBY", "HLEN", "HMGET", "HSET", "INFO",
    "LPUSH", "PEXPIRE", "PTTL", "PUBLISH", "SELECT", "SET", "TIME", "XADD", "XREVRANGE", "ZADD",
    "ZLEXCOUNT", "ZRANGE", "ZRANGEBYSCORE", "ZREM", "ZSCORE",
}  # fmt: skip
KEYLESS_COMMANDS = {"INFO", "SELECT", "TIME"}


@dataclass(frozen=True)
class Contract:
    """A script, divided into its header comment and its body."""

    header: str
    body: str

    @classmethod
    def read(cls, name: str) -> Contract:
        """Return that of one of the ledger's scripts, also where calls are recorded."""
        file = resources.files("celery_reliable.ledger").joinpath(f"lua/{name}.lua")
        return cls.of(file.read_text("utf-8"))

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
        faults = []
        for kind in ("KEYS", "ARGV"):
            listed = [int(n) for n in re.findall(rf"^{kind}\[(\d+)\]", self.header, re.MULTILINE)]
            used = sorted({int(n) for n in re.findall(rf"\b{kind}\[(\d+)\]", self.body)})
            if listed != used:
                faults.append(f"{kind}: header has {listed}, body uses {used}")
        has_more = re.search(r"^KEYS\[\d+\.\.\.\]", self.header, re.MULTILINE)
        own = r"KEYS\[\w+\]" if has_more else r"KEYS\[\d+\]"
        for command, first in self.commands():
            if command not in ALLOWED_COMMANDS:
                faults.append(f"{command} is not for scripts")
            elif command not in KEYLESS_COMMANDS and not re.fullmatch(own, first):
                faults.append(f"{command} on {first}, which is no key that it was given")
        # What the pattern above does not read must not be there.
        if len(re.findall(r"redis\.", self.body)) != len(self.commands()):
            faults.append("a use of redis that is no plain command")
        return faults


SOUND = """\
--[[
KEYS[1]   record   HASH
ARGV[1]   attempt
]]
if redis.call('HGET', KEYS[1], 'attempt') == ARGV[1] then
  redis.call('DEL', KEYS[1])
end
"""


def test_header_and_body_agree() -> None:
    found = {name: Contract.read(name).faults() for name in scripts.names()}

    assert {name: faults for name, faults in found.items() if faults} == {}
    assert Contract.of(SOUND).faults() == []


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("== ARGV[1]", "== ARGV[2]", "ARGV"),
        ("KEYS[1]   record   HASH\n", "", "KEYS"),
        ("'DEL', KEYS[1]", "'DEL', 'task:' .. ARGV[1]", "no key"),
        ("'DEL', KEYS[1]", "'KEYS', KEYS[1]", "not for scripts"),
        ("redis.call('DEL', KEYS[1])", "redis.setresp(3)", "no plain command"),
    ],
)
def test_a_script_that_is_changed_in_one_thing_is_found(old: str, new: str, fault: str) -> None:
    assert old in SOUND

    faults = Contract.of(SOUND.replace(old, new, 1)).faults()

    assert any(fault in found for found in faults), faults

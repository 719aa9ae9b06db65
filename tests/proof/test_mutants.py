"""Each condition and each write has its mutant, and only a test that sees one kills it."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("tree_sitter_lua", reason="tox run -e mutants installs it")

from proof.mutants import lua
from proof.mutants.lua_trials import tried

pytestmark = pytest.mark.full

TEXT = b"""\
-- if this then
local found = redis.call('HGET', KEYS[1], 'if')
if found then
  redis.call('DEL', KEYS[1])
elseif redis.call('zrem', KEYS[2], ARGV[1]) == 1 then
  redis.pcall(ARGV[2], KEYS[1])
end
redis.call('DEL', KEYS[1])
"""


def test_each_condition_and_each_write_has_its_mutant() -> None:
    found = {one.key.removeprefix("ledger/x: "): one for one in lua.of_text("ledger", "x", TEXT)}

    changed = {
        key: [
            line
            for before, line in zip(TEXT.decode().splitlines(), one.text.splitlines(), strict=True)
            if line != before
        ]
        for key, one in found.items()
    }
    assert changed == {
        "if found": ["if not (found) then"],
        "if redis.call('zrem', KEYS[2], ARGV[1]) == 1": [
            "elseif not (redis.call('zrem', KEYS[2], ARGV[1]) == 1) then"
        ],
        "redis.call('zrem', KEYS[2], ARGV[1])": ["elseif 1 == 1 then"],
        "redis.call('DEL', KEYS[1])": ["  do end"],
        "redis.pcall(ARGV[2], KEYS[1])": ["  do end"],
        "redis.call('DEL', KEYS[1]) (2)": ["do end"],
    }


def test_a_mutant_dies_by_a_test_that_sees_it_and_lives_where_there_is_none() -> None:
    one, *_ = lua.mutants("ledger", "end_run")
    whole = lua.source("ledger", "end_run").decode()
    harmless = replace(one, key="harmless", text=whole + "-- The same\n")
    endless = replace(one, key="endless", text="while true do end\n")
    mutants = [one, harmless, endless, replace(one, key="another")]

    found = tried(mutants, {}, 1, tests=["tests/ledger/test_named.py"])

    assert found["harmless"] is None
    assert found[one.key] == found["another"]
    assert str(found[one.key]).startswith("tests/ledger/test_named.py::")
    assert found["endless"]

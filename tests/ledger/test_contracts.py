"""Scripts use the keys and arguments that their headers list, by bounded commands alone."""

from __future__ import annotations

import pytest

from celery_reliable.ledger import scripts
from tests.ledger.contracts import Contract

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

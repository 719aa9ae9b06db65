"""The scripts of a worker's unacked hash say in their headers what they do."""

from __future__ import annotations

import re
from importlib import resources
from typing import Any

import pytest

SCRIPTS = sorted(resources.files("celery_reliable.broker").joinpath("lua").iterdir(), key=str)
#: All that they may do: with the unacked hash, with lists, and with the list of unacked hashes.
COMMANDS = {"EXISTS", "HDEL", "HEXISTS", "HGET", "HSET", "LLEN", "RPOP", "RPUSH", "SADD", "SREM"}
#: One that claims tasks looks whether such a task has its object.
OF_LOCKS = {"take_next.lua": {"GET"}}


@pytest.mark.parametrize("file", SCRIPTS, ids=lambda file: file.name)
def test_header_and_body_agree(file: Any) -> None:
    match = re.fullmatch(r"--\[\[\n(.*?)\n\]\]\n(.*)", file.read_text("utf-8"), re.DOTALL)
    assert match
    header, body = match.groups()
    assert header.startswith(f"{file.name.removesuffix('.lua')}: ")
    assert all(re.search(rf"^{title} +\S", header, re.MULTILINE) for title in ("Returns", "Cost"))
    for kind in ("KEYS", "ARGV"):
        listed = [int(n) for n in re.findall(rf"^{kind}\[(\d+)[\].]", header, re.MULTILINE)]
        used = {int(n) for n in re.findall(rf"\b{kind}\[(\d+)\]", body)}
        assert listed == list(range(1, len(listed) + 1))
        # The last may stand for many, and is counted to.
        assert used <= set(listed)
        n_rests = len(re.findall(rf"^{kind}\[\d+\.\.\]", header, re.MULTILINE))
        assert len(listed) - len(used) <= n_rests
    called = set(re.findall(r"redis\.call\('(\w+)'", body))
    assert called <= COMMANDS | OF_LOCKS.get(file.name, set())

"""Scripts for Redis, whose headers name the keys and arguments that the bodies use."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

__all__ = ["Script", "by_position"]

_LISTED = re.compile(r"^(KEYS|ARGV)\.(\w+)", re.MULTILINE)
_USED = re.compile(r"\b(KEYS|ARGV|FIRST)\.(\w+)")

#: The ledger's clock.  It never shows less than when it was last kept, which whoever notes a lease,
#: a pass or a task that waits does: where the server's is set back, it goes on from there.
_CLOCK = """\
local function clock()
  local time = redis.call('TIME')
  local server_us = time[1] * 1000000 + time[2]
  local kept = redis.call('HMGET', KEYS.clock, 'offset_ms', 'latest_ms')
  local now_us = math.max(server_us + (kept[1] or 0) * 1000, (kept[2] or 0) * 1000)
  return math.floor(now_us / 1000), now_us, math.floor(server_us / 1000)
end
local function keep_clock()
  local now_ms, _, server_ms = clock()
  -- A full server runs the rest of a script that has removed something.
  redis.call('HDEL', KEYS.clock, '')
  redis.call('HSET', KEYS.clock, 'offset_ms', string.format('%.0f', now_ms - server_ms),
    'latest_ms', string.format('%.0f', now_ms))
  return now_ms
end
"""
#: The waiting room for a moment.  Who puts in what comes before all others rings for the waker.
_LATER = """\
local function wait_until(id, due_ms)
  -- Else it would wait for longer where the clock is set back before anybody has kept it.
  keep_clock()
  redis.call('ZADD', KEYS.due, due_ms, id)
  redis.call('ZADD', KEYS.later, due_ms, id)
  if redis.call('ZRANGE', KEYS.later, 0, 0)[1] == id and redis.call('EXISTS', KEYS.bell) == 0 then
    redis.call('LPUSH', KEYS.bell, '')
    redis.call('PEXPIRE', KEYS.bell, 10000)
  end
end
"""
_NOW = "local now_ms, now_us = clock()\n"


@dataclass(frozen=True)
class Script:
    """A text, and the digest by which a server knows it."""

    name: str
    text: str
    sha: str

    @classmethod
    def of(cls, name: str, text: str) -> Script:
        """Return the script of this text."""
        return cls(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


def by_position(text: str) -> str:
    """Return a script as Redis takes it, with ``KEYS[1]`` for ``KEYS.record``, say.

    The header lists keys and arguments in the order in which they are sent.  ``FIRST.members`` is
    the number of the first of those of which there may be any number.  A body that uses ``now_ms``
    or ``now_us`` is told the ledger's time as it begins, unless it calls ``clock()`` itself.
    Raises KeyError where the body has a name that the header does not list.
    """
    header, end, body = text.partition("\n]]\n")
    at: dict[tuple[str, str], str] = {}
    for kind in ("KEYS", "ARGV"):
        names = [name for of, name in _LISTED.findall(header) if of == kind]
        for number, name in enumerate(names, 1):
            at[kind, name], at["FIRST", name] = f"{kind}[{number}]", str(number)
    waits = _LATER if "wait_until(" in body else ""
    if re.search(r"\bnow_[mu]s\b", body):
        body = _CLOCK + waits + ("" if "clock()" in body else _NOW) + body
    return header + end + _USED.sub(lambda found: at[found[1], found[2]], body)

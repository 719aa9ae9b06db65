"""What stands in Redis: whether every index follows from the records, and what is left at rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from celery_reliable.broker import UNACKED_LIST_PREFIX
from celery_reliable.broker.waiting import INBOX_PREFIX
from celery_reliable.ledger.schema import Keys
from tests.ledger.driver import clock
from tests.ledger.driver.tasks import NAMESPACE, OWN, QUEUE
from tests.support.records import fields_of

#: Keys that stay when nobody has anything to do.
_KEPT = (
    "meta", "clock", "pass", "sent", "workers", "direct", "dead", "grouped", "groups", "ended",
    "ended_at", "audit", "happened", "counts",
)  # fmt: skip
#: Returns what is wrong, as lines; the states of tasks, and of workers; the tasks' losses.
LOOK = r"""
local prefix, found, states, workers, losses = ARGV[1], {}, {}, {}, {}
local function wrong(text) found[#found + 1] = text end
local due, records, waits, grouped, members, revoked = {}, {}, {}, {}, {}, {}
for _, id in ipairs(redis.call('ZRANGE', prefix .. 'due', 0, -1)) do due[id] = true end
for _, key in ipairs(redis.call('KEYS', prefix .. 'task:*')) do
  local id = string.sub(key, #prefix + 6)
  local row = redis.call('HMGET', key, 'state', 'attempt', 'claim', 'owed',
    'since_ms', 'losses', 'waiting_for', 'letter', 'revoked', 'name')
  local state = row[1]
  records[id] = state or 'none'
  states[#states + 1] = id
  -- What is called off has ended, though something of it still runs.
  local reason = row[7] == 'workers' and row[7] or string.match(row[7] or '', '^o%l+ .*$')
  waits[id] = reason or nil
  revoked[id] = row[9]
  local object = string.match(row[7] or '', '^object (.*)$')
  local bound = row[7] == 'stop' and 'over' or row[7] == 'canvas' and 'replaced'
  states[#states + 1] = bound or (object and 'in line of ' .. object) or records[id]
  if (row[6] or '0') ~= '0' then
    losses[#losses + 1] = id
    losses[#losses + 1] = row[6]
  end
  local buried = redis.call('ZSCORE', prefix .. 'dead', id)
  if not state then
    wrong(id .. ': a record without a state')
  elseif state == 'running' then
    local pid, owner, token = string.match(row[3] or '', '^(%d+) %d+ ([^\n]*)\n([^\n]*)')
    local claim = redis.call('HGET', prefix .. 'claims:' .. (owner or ''), id)
    local meant = (row[2] or '') .. ' ' .. (pid or '') .. ' ' .. (token or '')
    if claim ~= meant then wrong(id .. ': runs, but its claim is ' .. tostring(claim)) end
  elseif state == 'dead' then
    if buried ~= row[5] then wrong(id .. ': dead, but not in its index') end
    local group = (string.match(row[8] or '', '^.-\n.-\n.-\n') or '') .. (row[10] or '')
    local name = string.sub(redis.sha1hex(group), 1, 12)
    local listed = redis.call('HGET', prefix .. 'groups', name)
    if listed ~= group then wrong(id .. ': its group is not listed') end
    grouped[name] = true
    members[string.format('%s %015.0f %s', name, row[5], id)] = true
    if row[4] and not due[id] then wrong(id .. ': owed, but not due') end
    if due[id] and not row[4] then wrong(id .. ': due, but dead and not owed') end
  elseif not due[id] then
    wrong(id .. ': ' .. state .. ', but not due')
  end
  if buried and state ~= 'dead' then wrong(id .. ': in the index of the dead, but ' .. state) end
end
for id in pairs(due) do
  if not records[id] then wrong(id .. ': due without a record') end
end
for _, id in ipairs(redis.call('ZRANGE', prefix .. 'dead', 0, -1)) do
  if not records[id] then wrong(id .. ': dead without a record') end
end
for _, member in ipairs(redis.call('ZRANGE', prefix .. 'grouped', 0, -1)) do
  if not members[member] then wrong(member .. ': in a group, and not dead') end
  members[member] = nil
end
for member in pairs(members) do wrong(member .. ': dead, and in no group') end
for _, name in ipairs(redis.call('HKEYS', prefix .. 'groups')) do
  if not grouped[name] then wrong('group ' .. name .. ': listed, and has no letter') end
end
for _, id in ipairs(redis.call('ZRANGE', prefix .. 'later', 0, -1)) do
  if records[id] ~= 'waiting' then wrong(id .. ': has a moment, and does not wait') end
  if waits[id] then wrong(id .. ': has a moment, and stands in the line of ' .. waits[id]) end
end
for _, key in ipairs(redis.call('KEYS', prefix .. 'waiting:*')) do
  local line = string.sub(key, #prefix + 9)
  local stands = line == 'workers' and redis.call('HKEYS', key) or redis.call('ZRANGE', key, 0, -1)
  for _, id in ipairs(stands) do
    if waits[id] ~= line then wrong(id .. ': in the line of ' .. line .. ', and does not wait') end
    waits[id] = nil
  end
end
for id, line in pairs(waits) do
  -- Who was revoked and then stepped into a line is let out of it, and a pass calls it off.
  if not revoked[id] then wrong(id .. ': waits for ' .. line .. ', and not in its line') end
end
for _, name in ipairs(redis.call('ZRANGE', prefix .. 'workers', 0, -1)) do
  local row = redis.call('HMGET', prefix .. 'worker:' .. name, 'state', 'missing_renewals',
    'renewals')
  local state = row[1] == 'alive' and row[2] and row[2] == row[3] and 'suspected' or row[1]
  if not state then wrong(name .. ': a worker without a lease') end
  workers[#workers + 1] = name
  workers[#workers + 1] = state or 'none'
end
for _, key in ipairs(redis.call('KEYS', prefix .. 'worker:*')) do
  if not redis.call('ZSCORE', prefix .. 'workers', string.sub(key, #prefix + 8)) then
    wrong(key .. ': a lease without its place among the workers')
  end
end
for _, key in ipairs(redis.call('KEYS', prefix .. 'claims:*')) do
  -- Only who is among the workers is swept.
  if not redis.call('ZSCORE', prefix .. 'workers', string.sub(key, #prefix + 8)) then
    wrong(key .. ': claims of nobody')
  end
end
return table.concat(found, '\n') .. '\n\n' .. table.concat(states, '\n') .. '\n\n'
  .. table.concat(workers, '\n') .. '\n\n' .. table.concat(losses, '\n')
"""


#: Returns an unacked hash that is not on their list; empty if there is none.
UNLISTED = """
local listed = {}
for _, name in ipairs(redis.call('SMEMBERS', ARGV[1])) do listed[name] = true end
for _, key in ipairs(redis.call('KEYS', 'unacked:*')) do
  if not listed[key] then return key end
end
return ''
"""


@dataclass(frozen=True)
class Sight:
    """What stands in the ledger at one moment."""

    faults: list[str]
    #: By the ids of tasks and of workers.
    states: dict[str, str]
    workers: dict[str, str]
    #: By the ids of tasks that have some.
    losses: dict[str, str]


class Indexes:
    """Reads the ledger of a world and its queues, for nobody's decision but the driver's."""

    def __init__(self, stage: Any, *, is_apart: bool) -> None:
        self._stage = stage
        self._client: Any = stage.client
        self._broker: Any = stage.brokers[is_apart]
        self._ask_broker = stage.ask_in[is_apart]
        self.keys = Keys(NAMESPACE)
        self.prefix = self.keys.record("").removesuffix("task:")
        self._raw = b""
        self.sight = Sight([], {}, {}, {})

    def look(self) -> Sight:
        """Return where the indexes say anything but what the records say, and the states."""
        raw = self._stage.ask("EVALSHA", self._stage.look, 0, self.prefix)
        if raw != self._raw:
            self._raw = raw
            parts = raw.decode().split("\n\n")
            faults, *pairs = ([line for line in part.split("\n") if line] for part in parts)
            found = (dict(zip(one[::2], one[1::2], strict=True)) for one in pairs)
            self.sight = Sight(faults, *found)
        return self.sight

    def unlisted(self) -> str:
        """Return an unacked hash that no pass would find; empty if there is none."""
        raw = self._ask_broker("EVALSHA", self._stage.unlisted, 0, UNACKED_LIST_PREFIX + NAMESPACE)
        return str(raw.decode())

    def record(self, task_id: str) -> dict[str, str]:
        """Return a record's fields; none for what has ended."""
        return fields_of(self._client.hgetall(self.keys.record(task_id)))

    def claimed_by(self, worker: str) -> list[str]:
        """Return the ids of tasks that a worker has claimed."""
        return [one.decode() for one in self._client.hkeys(self.keys.claims(worker))]

    def line(self, object_key: str) -> list[bytes]:
        """Return who stands in the line of an object, in order."""
        return list(self._client.zrange(self.keys.waiting(f"object {object_key}"), 0, -1))

    def is_declared_dead(self, worker: str) -> bool:
        """Whether a worker is dead to the ledger, or forgotten."""
        return bool(self._client.hget(self.keys.worker(worker), "state") != b"alive")

    def run_id_of_generation(self) -> bytes | None:
        """Return the run of the server that the generation belongs to; None where there is none."""
        found: bytes | None = self._stage.ask("HGET", self.keys.meta, "run_id")
        return found

    def now_ms(self) -> float:
        """Return the ledger's time."""
        offset_ms, latest_ms = self._client.hmget(self.keys.clock, "offset_ms", "latest_ms")
        seconds, micros = self._client.mget(clock.SECONDS, clock.MICROS)
        server_ms = float(seconds or 0) * 1000 + float(micros or 0) / 1000
        return max(server_ms + float(offset_ms or 0), float(latest_ms or 0))

    def next_due_ms(self) -> float:
        """Return when somebody must look next; 0 for never."""
        found = self._client.zrange(self.keys.due, 0, 0, withscores=True)
        return float(found[0][1]) if found else 0.0

    def next_run_ms(self) -> float:
        """Return when somebody looks whether a run is over; 0 for never."""
        found = self._client.zrange(self.keys.runs, 0, 0, withscores=True)
        return float(found[0][1]) if found else 0.0

    def last_due_ms(self) -> float:
        """Return when somebody must look last; 0 for never."""
        found = self._client.zrange(self.keys.due, -1, -1, withscores=True)
        return float(found[0][1]) if found else 0.0

    def left(self, workers: set[str], hashes: set[str], has_lost: bool) -> list[str]:
        """Return what has no owner, where only *workers* live, with their *hashes*.

        *has_lost*: the server has once lost what it knew.
        """
        found = []
        for key in sorted(self._client.keys("*")):
            name = key.decode()
            if not name.startswith(self.prefix):
                continue
            kind, _, rest = name.removeprefix(self.prefix).partition(":")
            if kind in _KEPT:
                continue
            if kind == "worker" and rest in workers:
                continue
            if kind == "task":
                record = self.record(rest)
                if record.get("state") == "dead" and "owed" not in record:
                    continue
                found.append(f"record of {rest}: {record.get('state')}")
                continue
            if self._is_nobodys(kind, key, has_lost):
                continue
            if self._client.pttl(key) < 0:
                found.append(name)
        found += [f"{name} lives, and has no lease" for name in sorted(workers - self._workers())]
        return found + self._left_at_broker(hashes, has_lost)

    def _is_nobodys(self, kind: str, key: bytes, has_lost: bool) -> bool:
        """Whether a key may stay when nobody has anything to do with it."""
        if kind == "orders":
            return bool(self._client.hkeys(key) == [b"version"])
        return kind == "lock" and self._is_free(key, has_lost)

    def _is_free(self, lock: bytes, has_lost: bool) -> bool:
        """Whether who wants the object takes it."""
        holder = self.record((self._client.get(lock) or b"").decode().partition(":")[2])
        # Its worker died before it said that it has stopped it; or the server forgot that the
        # object was freed.
        return "stopping_on" in holder or (has_lost and not holder)

    def _workers(self) -> set[str]:
        return {name.decode() for name in self._client.zrange(self.keys.workers, 0, -1)}

    def _left_at_broker(self, hashes: set[str], has_lost: bool) -> list[str]:
        found = []
        listed = {one.decode() for one in self._client.zrange(self.keys.direct, 0, -1)}
        for key in sorted(self._broker.keys("*")):
            name = key.decode()
            if name.startswith("celery-reliable.unacked:"):
                names = {one.decode() for one in self._broker.smembers(key)}
                found += [
                    f"{one} is on the list of unacked hashes" for one in sorted(names - hashes)
                ]
            elif name.endswith(OWN) and has_lost and name.removeprefix(INBOX_PREFIX) not in listed:
                # Its worker died before it had registered anew.
                continue
            elif name.startswith(("unacked:", INBOX_PREFIX)) or name == QUEUE or name.endswith(OWN):
                kind = self._broker.type(key)
                size = self._broker.llen(key) if kind == b"list" else self._broker.hlen(key)
                found.append(f"{size} messages in {name}")
        return found

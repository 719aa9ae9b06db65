--[[
open: a worker is about to open a message that came back from a dead worker, and may die of it.

The note of it says whose its death would be. That is clear only while no suspect has just begun in the worker,
which may be about to kill it: then the message waits.

KEYS[1]   record   HASH
KEYS[2]   due      ZSET
KEYS[3]   worker   HASH
KEYS[4]   claims   HASH   of that worker
ARGV[1]   id         of the task; "" for a message that tells none
ARGV[2]   epoch      of the message; "" when it carries none
ARGV[3]   delivery   names this delivery of the message
ARGV[4]   begun_ms   so long ago a suspect has just begun
ARGV[5]   alone_ms   when a message that waits is sent again, at first
Returns   {"opening"} | {"alone"} | {"dead"} | {"no_lease"}
          "alone": it is not to be opened, as it is sent again from its record; "no_lease": nothing was noted
Cost      O(log N) in records that are due some time
]]
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local found = redis.call('HMGET', KEYS[1], 'state', 'epoch', 'suspect', 'alone')
if found[1] == 'dead' then
  return {'dead'}
end
local worker = redis.call('HMGET', KEYS[3], 'state', 'suspect', 'suspect_claim', 'suspect_ms')
if worker[1] ~= 'alive' then
  return {'no_lease'}
end
if worker[2] and redis.call('HGET', KEYS[4], worker[2]) == worker[3] then
  local age_ms = now_ms - (worker[4] or 0)
  local has_just_begun = age_ms >= 0 and age_ms < tonumber(ARGV[4])
  local is_queued = found[1] == 'queued' and found[2] == ARGV[2]
  if is_queued and (has_just_begun or found[3] == 'ran') then
    if found[4] ~= ARGV[3] then
      local times = redis.call('HINCRBY', KEYS[1], 'waits', 1)
      -- As in claim.
      local wait_ms = math.floor(ARGV[5] * math.min(2 ^ (times - 1), 16) * (0.5 + time[2] % 1000 / 2000))
      redis.call('HDEL', KEYS[1], 'resends')
      redis.call('HSET', KEYS[1], 'unsent', '1', 'alone', ARGV[3], 'suspect', found[3] or 'opened')
      redis.call('ZADD', KEYS[2], now_ms + wait_ms, ARGV[1])
    end
    return {'alone'}
  end
  if has_just_begun then
    -- It has no record to be sent from: it is opened as if it were the first time.
    return {'opening'}
  end
end
redis.call('HSET', KEYS[3], 'opening', ARGV[3], 'opening_id', ARGV[1], 'opening_epoch', ARGV[2])
return {'opening'}

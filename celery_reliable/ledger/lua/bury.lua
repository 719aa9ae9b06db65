--[[
bury: make a task a dead letter. Its object is freed, unless an attempt of the task has still to be stopped.

Moves     running(attempt) -> dead
          absent | queued -> dead   (attempt "": a message that no worker can run, not a late copy)
          held by this task -> free
KEYS[1]   record   HASH
KEYS[2]   due      ZSET
KEYS[3]   claims   HASH   of the attempt's worker
KEYS[4]   dead     ZSET
KEYS[5]   lock     STRING   of the object; "none" for none
ARGV[1]   id
ARGV[2]   attempt     "" when none ran
ARGV[3]   reason      "failed", "lost", "time_limit", "rejected", "unprocessable"
ARGV[4]   exception   one line
ARGV[5]   traceback
ARGV[6]   message     kept when no record exists; else the record's own is kept
ARGV[7]   name        of the task, likewise
ARGV[8]   token       of the claim; "" when none ran
ARGV[9]   owed        "1": Celery has still to be told; else ""
ARGV[10]  epoch       of the message; "" when it carries none, or an attempt ran
ARGV[11]  unproved    "1": that no record exists does not prove that the message's task has ended; else ""
ARGV[12]  object      whose lock is given; "" for none
Returns   {"buried"} | {"fenced", state} | {"gone"} | {"stale"} | {"unrecorded"} | {"object", object}
          to a message: "stale" when its task goes on with another; "unrecorded": `ended` tells whether it is late
          "object": the record notes another one than was given, and nothing was changed
Cost      O(log N) in records that are due some time
]]
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local found = redis.call('HMGET', KEYS[1], 'state', 'attempt', 'ended', 'history', 'owner', 'token', 'epoch',
  'called_off', 'object', 'stopping', 'pid', 'claimed_ms')
-- What was called off has ended, though something of it may still run.
local state = not found[8] and found[1]
if ARGV[2] == '' then
  if state and found[7] ~= ARGV[10] then return {'stale'} end
  if state == 'dead' then return {'buried'} end
  if state and state ~= 'queued' then return {'fenced', state} end
  if not state and ARGV[11] == '' then return {'unrecorded'} end
elseif not state then
  return {'gone'}
elseif state == 'dead' and found[2] == ARGV[2] and found[3] == ARGV[2] then
  return {'buried'}
elseif state ~= 'running' or found[2] ~= ARGV[2] or found[6] ~= ARGV[8] then
  return {'fenced', state}
end
local is_freed = not found[10]
if is_freed and found[9] and found[9] ~= ARGV[12] then
  return {'object', found[9]}
end
-- The removal comes first, as in claim.
redis.call('HDEL', KEYS[1], 'owner', 'token', 'pid', 'claimed_ms', 'heir')
if not state then
  redis.call('HSET', KEYS[1], 'message', ARGV[6], 'name', ARGV[7], 'epoch', ARGV[10],
    'published_ms', now_ms)
  redis.call('HDEL', KEYS[1], 'called_off', 'published_as')
end
local history = cjson.decode(found[4] or '[]')
history[#history + 1] = {at_ms = now_ms, what = ARGV[3], attempt = tonumber(ARGV[2] ~= '' and ARGV[2] or 0),
  cause = ARGV[4], owner = found[5] or '', pid = tonumber(found[11] or 0), claimed_ms = tonumber(found[12] or 0)}
while #history > 20 do table.remove(history, 1) end
redis.call('HSET', KEYS[1], 'state', 'dead', 'ended', ARGV[2], 'reason', ARGV[3],
  'exception', ARGV[4], 'traceback', ARGV[5], 'buried_ms', now_ms, 'history', cjson.encode(history))
redis.call('HDEL', KEYS[3], ARGV[1])
if ARGV[9] == '1' then
  redis.call('HSET', KEYS[1], 'owed', '1')
  redis.call('ZADD', KEYS[2], now_ms, ARGV[1])
else
  redis.call('ZREM', KEYS[2], ARGV[1])
end
redis.call('ZADD', KEYS[4], now_ms, ARGV[1])
if is_freed and ARGV[12] ~= '' then
  redis.call('HDEL', KEYS[1], 'object')
  if string.match(redis.call('GET', KEYS[5]) or '', '^%d+:(.*)$') == ARGV[1] then
    redis.call('DEL', KEYS[5])
  end
end
return {'buried'}

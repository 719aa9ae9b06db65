--[[
bury: make a task a dead letter. Its object is freed, unless an attempt of the task has still to be stopped.

Moves     running(attempt) -> dead
          absent | queued -> dead   (attempt "": a message that no worker can run, not a late copy)
          held by this task -> free
KEYS.record           task:<id>         HASH
KEYS.due              due               ZSET
KEYS.claims           claims:<worker>   HASH of the attempt's worker
KEYS.dead             dead              ZSET
KEYS.lock             lock:<object>     STRING of the object
KEYS.clock            clock             HASH
ARGV.id
ARGV.attempt?: int    "" when none ran
ARGV.reason           "failed", "lost", "time_limit", "rejected", "unprocessable"
ARGV.exception        one line
ARGV.traceback
ARGV.message?         kept when no record exists; else the record's own is kept
ARGV.name?            of the task, likewise
ARGV.token?           of the claim; "" when none ran
ARGV.owed: flag       "1": Celery has still to be told; else ""
ARGV.epoch?           of the message; "" when it carries none, or an attempt ran
ARGV.unproved: flag   "1": that no record exists does not prove that the message's task has ended; else ""
ARGV.object?          whose lock is given; "" for none
Returns   {"buried"} | {"fenced", state} | {"gone"} | {"stale"} | {"unrecorded"} | {"other_object", object_key}
          to a message: "stale" when its task goes on with another; "unrecorded": `ended` tells whether it is late
          "other_object": the record notes another one than was given, and nothing was changed
Repeated  gone -> buried
Cost      O(log N) in records that are due some time
]]
local found = redis.call('HMGET', KEYS.record, 'state', 'attempt', 'ended', 'history', 'owner', 'token', 'epoch',
  'called_off', 'object', 'stopping', 'pid', 'claimed_ms')
-- What was called off has ended, though something of it may still run.
local state = not found[8] and found[1]
if ARGV.attempt == '' then
  if state and found[7] ~= ARGV.epoch then return {'stale'} end
  if state == 'dead' then return {'buried'} end
  if state and state ~= 'queued' then return {'fenced', state} end
  if not state and ARGV.unproved == '' then return {'unrecorded'} end
elseif not state then
  return {'gone'}
elseif state == 'dead' and found[2] == ARGV.attempt and found[3] == ARGV.attempt then
  return {'buried'}
elseif state ~= 'running' or found[2] ~= ARGV.attempt or found[6] ~= ARGV.token then
  return {'fenced', state}
end
local is_freed = not found[10]
if is_freed and found[9] and found[9] ~= ARGV.object then
  return {'other_object', found[9]}
end
-- The removal comes first, as in claim.
redis.call('HDEL', KEYS.record, 'owner', 'token', 'pid', 'claimed_ms', 'heir')
if not state then
  redis.call('HSET', KEYS.record, 'message', ARGV.message, 'name', ARGV.name, 'epoch', ARGV.epoch,
    'published_ms', now_ms)
  redis.call('HDEL', KEYS.record, 'called_off', 'published_as')
end
local history = cjson.decode(found[4] or '[]')
history[#history + 1] = {at_ms = now_ms, what = ARGV.reason,
  attempt = tonumber(ARGV.attempt ~= '' and ARGV.attempt or 0),
  cause = ARGV.exception, owner = found[5] or '', pid = tonumber(found[11] or 0), claimed_ms = tonumber(found[12] or 0)}
while #history > 20 do table.remove(history, 1) end
redis.call('HSET', KEYS.record, 'state', 'dead', 'ended', ARGV.attempt, 'reason', ARGV.reason,
  'exception', ARGV.exception, 'traceback', ARGV.traceback, 'buried_ms', now_ms, 'history', cjson.encode(history))
redis.call('HDEL', KEYS.claims, ARGV.id)
if ARGV.owed == '1' then
  redis.call('HSET', KEYS.record, 'owed', '1')
  redis.call('ZADD', KEYS.due, now_ms, ARGV.id)
else
  redis.call('ZREM', KEYS.due, ARGV.id)
end
redis.call('ZADD', KEYS.dead, now_ms, ARGV.id)
if is_freed and ARGV.object ~= '' then
  redis.call('HDEL', KEYS.record, 'object')
  if string.match(redis.call('GET', KEYS.lock) or '', '^%d+:(.*)$') == ARGV.id then
    redis.call('DEL', KEYS.lock)
  end
end
return {'buried'}

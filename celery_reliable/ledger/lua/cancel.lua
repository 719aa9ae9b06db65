--[[
cancel: end a task that nobody runs: it was revoked, has expired, or was purged. Its object is freed.

Moves     queued | parked | waiting -> absent
          queued | parked -> waiting   (an attempt that was taken from it has not been stopped yet)
          held by this task -> free
KEYS[1]   record   HASH
KEYS[2]   due      ZSET
KEYS[3]   lock     STRING   of the object; "none" for none
KEYS[4]   ended    HASH   where the task is to be kept; not given for what nothing happened to
KEYS[5]   ended_at ZSET   when each of these ended; likewise
ARGV[1]   id
ARGV[2]   epoch        of the publication that is called off; "called_off": what was called off is let go
ARGV[3]   due_in_ms    when to look whether the attempt has been stopped
ARGV[4]   is_revoked   "1": what runs is not run again, should its attempt end without an outcome
ARGV[5]   object       whose lock is given; "" for none
ARGV[6]   outcome      with KEYS[4]: a state of Celery's
ARGV[7]   by           with KEYS[4]: who ended it, and why
ARGV[8]   most         with KEYS[4]: how many are kept there
Returns   {"cancelled"} | {"running", owner} | {"dead"} | {"stale"} | {"gone"} | {"object", object} | {"troubled"}
          "stale": another publication has the id; "gone" also of what was called off before, while the attempt still
          runs; "object": the record notes another one than was given; "troubled": it has a history, and KEYS[4] was
          not given; nothing was changed by either
Cost      O(log N) in records that are due some time
]]
local found = redis.call('HMGET', KEYS[1], 'state', 'epoch', 'owner', 'stopping', 'called_off', 'object', 'history')
if not found[1] or (found[4] and found[5]) then
  return {'gone'}
end
if found[1] == 'dead' then
  return {'dead'}
end
if (found[5] and 'called_off' or found[2] or '') ~= ARGV[2] then
  return {'stale'}
end
if found[1] == 'running' then
  if ARGV[4] == '1' then
    -- The removal comes first, as in claim.
    redis.call('HDEL', KEYS[1], '')
    redis.call('HSET', KEYS[1], 'revoked', '1')
  end
  return {'running', found[3]}
end
if not found[4] and found[6] and found[6] ~= ARGV[5] then
  return {'object', found[6]}
end
if found[7] and not KEYS[4] then
  return {'troubled'}
end
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local known = KEYS[4] and redis.call('HMGET', KEYS[1], 'name', 'published_ms', 'losses', 'attempt')
-- The removal comes first, as in claim.
redis.call('ZREM', KEYS[2], ARGV[1])
if not found[4] then
  redis.call('DEL', KEYS[1])
  if ARGV[5] ~= '' and string.match(redis.call('GET', KEYS[3]) or '', '^%d+:(.*)$') == ARGV[1] then
    redis.call('DEL', KEYS[3])
  end
else
  -- An attempt still runs.  Its number and its object stay its own, and the next task of this id waits for it.
  redis.call('HDEL', KEYS[1], 'epoch', 'ended', 'losses', 'history', 'cause', 'resends', 'unsent', 'stored', 'relied',
    'suspect', 'spared', 'openings', 'waits', 'alone', 'revoked')
  redis.call('HSET', KEYS[1], 'state', 'waiting', 'called_off', '1')
  redis.call('ZADD', KEYS[2], now_ms + ARGV[3], ARGV[1])
end
if known then
  redis.call('HSET', KEYS[4], ARGV[1], cjson.encode({outcome = ARGV[6], by = ARGV[7], ended_ms = now_ms,
    attempt = known[4], name = known[1], published_ms = known[2], losses = known[3], history = found[7]}))
  redis.call('ZADD', KEYS[5], now_ms, ARGV[1])
  local spare = redis.call('HLEN', KEYS[4]) - ARGV[8]
  if spare > 0 then
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', '+inf', 'LIMIT', 0, math.min(spare, 10))) do
      redis.call('HDEL', KEYS[4], id)
      redis.call('ZREM', KEYS[5], id)
    end
  end
end
return {'cancelled'}

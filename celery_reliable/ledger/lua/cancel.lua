--[[
cancel: end a task that nobody runs: it was revoked, has expired, or was purged. Its object is freed.

Moves     queued | parked | waiting -> absent
          queued | parked -> waiting   (an attempt that was taken from it has not been stopped yet)
          held by this task -> free
KEYS.record             task:<id>       HASH
KEYS.due                due             ZSET
KEYS.later              later           ZSET
KEYS.lock               lock:<object>   STRING of the object
KEYS.clock              clock           HASH
KEYS.ended+             ended           HASH where the task is to be kept; not given for what nothing happened to
KEYS.ended_at+          ended_at        ZSET when each of these ended; likewise
ARGV.id
ARGV.epoch              of the publication that is called off; "called_off": what was called off is let go
ARGV.due_in_ms: int     when to look whether the attempt has been stopped
ARGV.is_revoked: flag   "1": what runs is not run again, should its attempt end without an outcome
ARGV.object?            whose lock is given; "" for none
ARGV.outcome+           with KEYS.ended: a state of Celery's
ARGV.by+                with KEYS.ended: who ended it, and why
ARGV.most+: int         with KEYS.ended: how many are kept there
Returns   {"cancelled"} | {"running", owner} | {"dead"} | {"stale"} | {"gone"} | {"other_object", object_key}
          | {"troubled"}
          "stale": another publication has the id; "gone" also of what was called off before, while the attempt still
          runs; "other_object": the record notes another one than was given; "troubled": it has a history, and
          KEYS.ended was not given; nothing was changed by either
Cost      O(log N) in records that are due some time
]]
local found = redis.call('HMGET', KEYS.record, 'state', 'epoch', 'owner', 'stopping', 'called_off', 'object', 'history')
if not found[1] or (found[4] and found[5]) then
  return {'gone'}
end
if found[1] == 'dead' then
  return {'dead'}
end
if (found[5] and 'called_off' or found[2] or '') ~= ARGV.epoch then
  return {'stale'}
end
if found[1] == 'running' then
  if ARGV.is_revoked == '1' then
    -- The removal comes first, as in claim.
    redis.call('HDEL', KEYS.record, '')
    redis.call('HSET', KEYS.record, 'revoked', '1')
  end
  return {'running', found[3]}
end
if not found[4] and found[6] and found[6] ~= ARGV.object then
  return {'other_object', found[6]}
end
if found[7] and not KEYS.ended then
  return {'troubled'}
end
local known = KEYS.ended and redis.call('HMGET', KEYS.record, 'name', 'published_ms', 'losses', 'attempt')
-- The removal comes first, as in claim.
redis.call('ZREM', KEYS.due, ARGV.id)
redis.call('ZREM', KEYS.later, ARGV.id)
if not found[4] then
  redis.call('DEL', KEYS.record)
  if ARGV.object ~= '' and string.match(redis.call('GET', KEYS.lock) or '', '^%d+:(.*)$') == ARGV.id then
    redis.call('DEL', KEYS.lock)
  end
else
  -- An attempt still runs.  Its number and its object stay its own, and the next task of this id waits for it.
  redis.call('HDEL', KEYS.record, 'epoch', 'ended', 'losses', 'history', 'cause', 'resends', 'unsent', 'stored', 'relied',
    'suspect', 'spared', 'openings', 'waits', 'alone', 'revoked')
  redis.call('HSET', KEYS.record, 'state', 'waiting', 'called_off', '1')
  redis.call('ZADD', KEYS.due, now_ms + ARGV.due_in_ms, ARGV.id)
end
if known then
  redis.call('HSET', KEYS.ended, ARGV.id, cjson.encode({outcome = ARGV.outcome, by = ARGV.by, ended_ms = now_ms,
    attempt = known[4], name = known[1], published_ms = known[2], losses = known[3], history = found[7]}))
  redis.call('ZADD', KEYS.ended_at, now_ms, ARGV.id)
  local spare = redis.call('HLEN', KEYS.ended) - ARGV.most
  if spare > 0 then
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS.ended_at, '-inf', '+inf', 'LIMIT', 0, math.min(spare, 10))) do
      redis.call('HDEL', KEYS.ended, id)
      redis.call('ZREM', KEYS.ended_at, id)
    end
  end
end
return {'cancelled'}

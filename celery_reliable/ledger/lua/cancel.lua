--[[
cancel: end a task that nobody runs: it was revoked, has expired, or was purged. Its object is freed.

Moves     queued | parked | waiting -> absent
          queued | parked -> waiting   (an attempt that was taken from it has not been stopped yet)
          held by this task -> free
KEYS.record             task:<id>       HASH
ARGV.id
ARGV.epoch              of the publication that is called off; "called_off": what was called off is let go
ARGV.due_in_ms: int     when to look whether the attempt has been stopped
ARGV.is_revoked: flag   "1": what runs is not run again, should its attempt end without an outcome
ARGV.outcome+           a state of Celery's; not given for what nothing happened to, which is not kept
ARGV.by+                who ended it, and why
ARGV.most+: int         how many are kept
Returns   {"cancelled"} | {"running", owner} | {"dead"} | {"stale"} | {"gone"} | {"troubled"}
          "stale": another publication has the id; "gone" also of what was called off before, while the attempt still
          runs; "troubled": it has a history, and is to be kept; nothing was changed
Cost      O(log N) in records that are due some time
]]
local found = redis.call('HMGET', KEYS.record, 'state', 'epoch', 'claim', 'stopping', 'called_off', 'object', 'history',
  'waiting_for')
if not found[1] or (found[5] and still_stopping(KEYS.record, found[4])) then
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
    redis.call('HSET', KEYS.record, 'revoked', '1')
  end
  return {'running', (select(4, parts_of(found[3])))}
end
if found[7] and not ARGV.outcome then
  return {'troubled'}
end
local known = ARGV.outcome and redis.call('HMGET', KEYS.record, 'name', 'published_ms', 'losses', 'attempt')
leave(ARGV.id, found[8])
call_off(still_stopping(KEYS.record, found[4]), found[6], ARGV.due_in_ms)
if known then
  keep_ended({attempt = known[4], name = known[1], published_ms = known[2], losses = known[3], history = found[7]})
end
return {'cancelled'}

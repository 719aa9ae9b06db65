--[[
bury: make a task a dead letter. Its object is freed, unless an attempt of the task has still to be stopped.

Moves     running(attempt) -> dead
          absent | queued -> dead   (attempt "": a message that no worker can run, not a late copy)
          held by this task -> free
KEYS.record           task:<id>         HASH
KEYS.claims           claims:<worker>   HASH of the attempt's worker
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
Returns   {"buried"} | {"fenced", state} | {"gone"} | {"stale"} | {"unrecorded"}
          to a message: "stale" when its task goes on with another; "unrecorded": `ended` tells whether it is late
Repeated  gone -> buried
Cost      O(log N) in records that are due some time
]]
local found = redis.call('HMGET', KEYS.record, 'state', 'attempt', 'ended', 'history', 'owner', 'token', 'epoch',
  'called_off', 'object', 'stopping_on', 'pid', 'claimed_ms')
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
redis.call('HDEL', KEYS.record, 'owner', 'token', 'pid', 'claimed_ms', 'heir')
if not state then
  redis.call('HSET', KEYS.record, 'message', ARGV.message, 'name', ARGV.name, 'epoch', ARGV.epoch,
    'published_ms', now_ms)
  redis.call('HDEL', KEYS.record, 'called_off', 'published_as')
end
local history = longer(found[4], {at_ms = now_ms, what = ARGV.reason,
  attempt = tonumber(ARGV.attempt ~= '' and ARGV.attempt or 0),
  cause = ARGV.exception, owner = found[5] or '', pid = tonumber(found[11] or 0), claimed_ms = tonumber(found[12] or 0)})
redis.call('HDEL', KEYS.claims, ARGV.id)
make_letter(KEYS.record, ARGV.id, ARGV.owed == '1', not still_stopping(KEYS.record, found[10]) and found[9], 'ended',
  ARGV.attempt, 'reason', ARGV.reason, 'exception', ARGV.exception, 'traceback', ARGV.traceback, 'history', history)
return {'buried'}

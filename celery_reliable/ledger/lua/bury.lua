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
ARGV.kind             name of the exception's type; "" where it has none
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
local found = redis.call('HMGET', KEYS.record, 'state', 'attempt', 'claim', 'history', 'epoch',
  'waiting_for', 'object')
-- What was called off has ended, though something of it may still run.
local state = found[6] ~= 'stop' and found[1]
if ARGV.attempt == '' then
  if state and found[5] ~= ARGV.epoch then return {'stale'} end
  if state == 'dead' then return {'buried'} end
  if state and state ~= 'queued' then return {'fenced', state} end
  if not state and ARGV.unproved == '' then return {'unrecorded'} end
elseif not state then
  return {'gone'}
elseif state == 'dead' and found[2] == ARGV.attempt and is_spent(found[3]) then
  return {'buried'}
else
  local refused = refusal(unpack(found, 1, 3))
  if refused then return refused end
end
redis.call('HDEL', KEYS.claims, ARGV.id)
if not state then
  redis.call('HSET', KEYS.record, 'message', ARGV.message, 'name', ARGV.name, 'epoch', ARGV.epoch,
    'published_ms', now_ms)
  redis.call('HDEL', KEYS.record, 'waiting_for', 'published_as')
end
make_letter(KEYS.record, ARGV.id, ARGV.owed == '1', not still_stopping(found[3]) and found[7],
  '', ARGV.kind, ARGV.reason, ARGV.exception, 'traceback', ARGV.traceback,
  'history', longer(found[4], ARGV.reason, ARGV.attempt ~= '' and ARGV.attempt or 0, ARGV.exception, ARGV.attempt ~= '' and found[3]))
return {'buried'}

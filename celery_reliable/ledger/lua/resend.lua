--[[
resend: take the right to send the message of an overdue task again, and return the message.

Moves     queued | waiting -> queued
KEYS.record           task:<id>   HASH
KEYS.due              due         ZSET
ARGV.id
ARGV.due_ms           that was seen: of two sweepers only one sends
ARGV.due_in_ms: int   when to look again; doubled with every resend, 64 times at most
ARGV.stored?          the result that is there, which does not prove that this task has ended; "" not known
ARGV.message?         the same, sent to another place; "": as it is
ARGV.epoch?           of the message that is there
ARGV.places?: int     how many places its object has now, if it stands in a line; "": as many as its record says
ARGV.is_expired: flag  "1": send it although it stands in a line: a worker is to say that it has expired
ARGV.next?            epoch of the message that takes its place, so that what was sent before is stale
Returns   {"send", message, due_ms, is_suspect: flag} | {"held", owner} | {"changed"} | {"standing", before}
          with the time that is due now, and "" for a task that did not come back from a dead worker; "held" by the
          worker that is to stop an attempt of the task; "standing": it stays in the line of its object, behind that task
          or as the first, or it was let in by this call
Cost      O(log N) in records that are due some time
]]
local found = redis.call('HMGET', KEYS.record, 'state', 'message', 'resends', 'stopping',
  'suspect', 'epoch', 'waiting_for', 'published_ms')
if (found[1] ~= 'queued' and found[1] ~= 'waiting') or found[7] == 'canvas' or found[7] == 'stop' then
  return {'changed'}
end
if redis.call('ZSCORE', KEYS.due, ARGV.id) ~= ARGV.due_ms then
  return {'changed'}
end
local stopping_on = still_stopping(KEYS.record, found[4])
if stopping_on then
  return {'held', stopping_on}
end
local object = string.match(found[7] or '', '^object (.*)$')
if object and ARGV.is_expired == '' then
  -- Its line may have lost it.
  redis.call('ZADD', KEYS.ledger .. 'waiting:' .. found[7], 'NX', turn_of(found[8] or now_ms, found[6]), ARGV.id)
  local first = let_in(object, nil, ARGV.places ~= '' and ARGV.places or nil)
  if redis.call('HGET', KEYS.record, 'waiting_for') == found[7] then
    redis.call('ZADD', KEYS.due, now_ms + ARGV.due_in_ms * (first == ARGV.id and 1 or 64), ARGV.id)
  end
  return {'standing', first ~= ARGV.id and first or ''}
end
if ARGV.message ~= '' and found[6] ~= ARGV.epoch then
  return {'changed'}
end
local message, resends = found[2], tonumber(found[3] or 0)
-- It waits for nothing more: else whatever ended that would move its time.
leave(ARGV.id, found[7])
redis.call('HDEL', KEYS.record, 'unsent', 'waiting_for', 'places', 'look_ms', 'own_places')
if ARGV.message ~= '' then
  message = ARGV.message
  redis.call('HSET', KEYS.record, 'message', message, 'epoch', ARGV.next)
end
redis.call('HSET', KEYS.record, 'state', 'queued', 'since_ms', now_ms, 'resends', resends + 1)
if ARGV.stored ~= '' then
  redis.call('HSET', KEYS.record, 'stored', ARGV.stored)
end
redis.call('ZADD', KEYS.due, now_ms + ARGV.due_in_ms * math.min(2 ^ resends, 64), ARGV.id)
return {'send', message, redis.call('ZSCORE', KEYS.due, ARGV.id), found[5] or ''}

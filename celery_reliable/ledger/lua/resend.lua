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
Returns   {"send", message, due_ms} | {"held", owner} | {"changed"} | {"standing", before}
          with the time that is due now; "held" by the worker that is to stop an attempt of the task; "standing": it stays
          in the line of its object, behind that task or as the first, or it was let in by this call
Cost      O(log N) in records that are due some time
]]
local found = redis.call('HMGET', KEYS.record, 'state', 'message', 'resends', 'claim',
  'epoch', 'waiting_for', 'published_ms')
if not is_to_run(found[1], found[6]) or redis.call('ZSCORE', KEYS.due, ARGV.id) ~= ARGV.due_ms then
  return {'changed'}
end
local stopping_on = still_stopping(found[4])
if stopping_on then
  return {'held', stopping_on}
end
local object = string.match(found[6] or '', '^object (.*)$')
if object and ARGV.is_expired == '' then
  -- Its line may have lost it.
  redis.call('ZADD', KEYS.ledger .. 'waiting:' .. found[6], 'NX', turn_of(found[7] or now_ms, found[5]), ARGV.id)
  -- The first of the line is looked at sooner: when the object is free again by itself, at the latest.
  redis.call('ZADD', KEYS.due, now_ms + ARGV.due_in_ms * 64, ARGV.id)
  local first = let_in(object, nil, ARGV.places ~= '' and ARGV.places or nil)
  return {'standing', first ~= ARGV.id and first or ''}
end
if ARGV.message ~= '' and found[5] ~= ARGV.epoch then
  return {'changed'}
end
local resends = tonumber(found[3] or '') or 0
-- It waits for nothing more: else whatever ended that would move its time.
leave(ARGV.id, found[6])
redis.call('HDEL', KEYS.record, 'waiting_for', 'room')
if ARGV.message ~= '' then
  redis.call('HSET', KEYS.record, 'message', ARGV.message, 'epoch', ARGV.next)
end
redis.call('HSET', KEYS.record, 'state', 'queued', 'since_ms', now_ms, 'resends', resends + 1)
if ARGV.stored ~= '' then
  redis.call('HSET', KEYS.record, 'used', ARGV.stored)
end
redis.call('ZADD', KEYS.due, now_ms + ARGV.due_in_ms * math.min(2 ^ resends, 64), ARGV.id)
return {'send', ARGV.message ~= '' and ARGV.message or found[2], redis.call('ZSCORE', KEYS.due, ARGV.id)}

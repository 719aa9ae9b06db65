--[[
place: an attempt takes a place of its object before its body begins. Without one, its task may wait in the object's line.

The line is in the order of publication. While tasks stand there, no later one takes a free place. A task that has a place
keeps it, even if the object has fewer places by now. As soon as a place is free, the first task of the line gets it as
attempt 0 (`let_in`).

Moves     free -> held
          held by an older attempt of the same id, or by what has ended -> held
          running(attempt) -> waiting   (it stands in the line; its body has not begun, so it gives its number back)
          waiting -> queued   (of those before it, and of more where there are more places by now)
KEYS.record           task:<id>         HASH
KEYS.claims           claims:<worker>   HASH of the attempt's worker
ARGV.id
ARGV.attempt?: int    that is about to begin its body; "": the one that the claim with this token has begun
ARGV.token            of the attempt's claim
ARGV.object
ARGV.places: int      how many there are
ARGV.is_own: flag     "1": the call says so itself, for its task alone; else ""
ARGV.stands: flag     "1": without a place it stands in the line from now on; else ""
ARGV.due_in_ms: int   when somebody must look at what was sent, and at who is the first of the line
ARGV.list?            the list that its message goes into when its turn has come; "" where it is sent otherwise
Returns   {"placed", object_key} | {"full", before} | {"standing", before} | {"not_current"}
          "placed": the attempt has that place; before: a task that has one, or stands before it; "" where nobody is known
Cost      O(places), O(log N) in records that are due some time
]]
local found = redis.call('HMGET', KEYS.record, 'state', 'attempt', 'claim', 'waiting_for', 'published_ms', 'epoch',
  'object', 'revoked')
local attempt = ARGV.attempt == '' and found[2] or ARGV.attempt
if found[1] ~= 'running' or found[2] ~= attempt or parts_of(found[3]) ~= ARGV.token then
  if found[4] == 'object ' .. ARGV.object and is_spent(found[3]) then
    -- Repeated.
    return {'standing', ''}
  end
  return {'not_current'}
end
local place, before = found[7], nil
if not place or string.match(place, '^[^#]*') ~= ARGV.object
    or string.match(redis.call('GET', KEYS.ledger .. 'lock:' .. place) or '', '^%d+:(.*)$') ~= ARGV.id then
  place, before = place_for(ARGV.id, ARGV.object, ARGV.places, turn_of(found[5] or now_ms, found[6]), ARGV.is_own)
end
if place then
  redis.call('SET', KEYS.ledger .. 'lock:' .. place, attempt .. ':' .. ARGV.id)
  redis.call('HSET', KEYS.record, 'object', place)
  -- There may be more places than those who wait know.
  if ARGV.is_own == '' then let_in(ARGV.object, nil, ARGV.places) end
  return {'placed', place}
end
if ARGV.stands == '' then
  return {'full', before or ''}
end
redis.call('HDEL', KEYS.claims, ARGV.id)
redis.call('HSET', KEYS.record, 'attempt', attempt - 1)
stand_for(ARGV.id, KEYS.record, ARGV.object, ARGV.places, turn_of(found[5] or now_ms, found[6]), ARGV.is_own,
  ARGV.list, ARGV.due_in_ms)
if found[8] then
  -- A pass calls it off.
  redis.call('ZADD', KEYS.ledger .. 'due', now_ms, ARGV.id)
end
return {'standing', before or ''}

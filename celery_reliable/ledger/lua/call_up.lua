--[[
call_up: a place of an object may be free by now: whoever stands in its line first is due.

It follows each script that may free a place, in the same step. What has ended and stands first is struck off. Whoever is
the first from then on is due though the lock is held: another place may be free, of which the one before it could take
fewer.

KEYS.lock   lock:<place>       STRING that may be free
KEYS.line   waiting:<object>   ZSET of the object
KEYS.due    due                ZSET
KEYS.clock  clock              HASH
Returns   {"next", task_id} | {"nobody"}
          "next": it asks for a place by `place`; "nobody" stands in the line, or the lock is held, and whoever is the
          first was it before
Cost      O(log N) in records that are due some time; and as often for what has ended in the line
]]
local first
local is_new_first = false
for struck = 1, 1000 do
  first = redis.call('ZRANGE', KEYS.line, 0, 0)[1]
  -- What is parked is due some time.
  if not first or redis.call('ZSCORE', KEYS.due, first) then break end
  redis.call('ZREM', KEYS.line, first)
  is_new_first = true
end
if not first then
  return {'nobody'}
end
-- The removal comes first, as in claim.
redis.call('ZREM', KEYS.line, '')
if redis.call('EXISTS', KEYS.lock) == 1 then
  local left_ms = redis.call('PTTL', KEYS.lock)
  if left_ms > 0 then
    -- It is kept after a success.
    redis.call('ZADD', KEYS.due, 'XX', 'LT', now_ms + left_ms, first)
  end
  if left_ms > 0 or not is_new_first then
    return {'nobody'}
  end
end
redis.call('ZADD', KEYS.due, 'XX', 'LT', now_ms, first)
return {'next', first}

--[[
call_up: a place of an object may be free by now: whoever stands in its line first is due.

It follows each script that may free a place, in the same step. What has ended and stands first is struck off. Whoever is
the first from then on is due though the lock is held: another place may be free, of which the one before it could take
fewer.

KEYS[1]   lock     STRING   that may be free
KEYS[2]   line     ZSET     of the object
KEYS[3]   due      ZSET
Returns   {"next", id} | {"nobody"}
          "next": it asks for a place by `place`; "nobody" stands in the line, or the lock is held, and whoever is the
          first was it before
Cost      O(log N) in records that are due some time; and as often for what has ended in the line
]]
local first
local is_new_first = false
for struck = 1, 1000 do
  first = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
  -- What is parked is due some time.
  if not first or redis.call('ZSCORE', KEYS[3], first) then break end
  redis.call('ZREM', KEYS[2], first)
  is_new_first = true
end
if not first then
  return {'nobody'}
end
local time = redis.call('TIME')
-- The removal comes first, as in claim.
redis.call('ZREM', KEYS[2], '')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
if redis.call('EXISTS', KEYS[1]) == 1 then
  local left_ms = redis.call('PTTL', KEYS[1])
  if left_ms > 0 then
    -- It is kept after a success.
    redis.call('ZADD', KEYS[3], 'XX', 'LT', now_ms + left_ms, first)
  end
  if left_ms > 0 or not is_new_first then
    return {'nobody'}
  end
end
redis.call('ZADD', KEYS[3], 'XX', 'LT', now_ms, first)
return {'next', first}

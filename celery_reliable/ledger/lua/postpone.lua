--[[
postpone: a pass has looked at a record, and there is nothing to do yet.

KEYS[1]   record   HASH
KEYS[2]   due      ZSET
ARGV[1]   id
ARGV[2]   due_ms      that was seen
ARGV[3]   due_in_ms   when to look again
ARGV[4]   is_unsent   "1": the resend that gave this due_ms was not sent, and is not counted
Returns   {"postponed"} | {"changed"} | {"gone"}
Cost      O(log N) in records that are due some time
]]
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
if redis.call('ZSCORE', KEYS[2], ARGV[1]) ~= ARGV[2] then
  return {'changed'}
end
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('ZREM', KEYS[2], ARGV[1])
  return {'gone'}
end
-- The removal comes first, as in claim.
redis.call('HDEL', KEYS[1], '')
if ARGV[4] == '1' then
  redis.call('HSET', KEYS[1], 'unsent', '1')
  if redis.call('HINCRBY', KEYS[1], 'resends', -1) <= 0 then
    redis.call('HDEL', KEYS[1], 'resends')
  end
end
redis.call('ZADD', KEYS[2], now_ms + ARGV[3], ARGV[1])
return {'postponed'}

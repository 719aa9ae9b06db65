--[[
end_run: a pass has looked at a run: it goes on, or all its members have ended and it is kept for a while.

KEYS[1]   run    HASH
KEYS[2]   runs   ZSET
ARGV[1]   id
ARGV[2]   due_ms      that was seen
ARGV[3]   keep_ms     for how long it is kept, as it is over; "" when it goes on
ARGV[4]   due_in_ms   when to look again, as it goes on
Returns   {"postponed"} | {"ended"} | {"changed"}
Cost      O(log N) in runs
]]
if redis.call('ZSCORE', KEYS[2], ARGV[1]) ~= ARGV[2] then
  return {'changed'}
end
if ARGV[3] ~= '' then
  redis.call('ZREM', KEYS[2], ARGV[1])
  redis.call('HSET', KEYS[1], ':over', '1')
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  return {'ended'}
end
local time = redis.call('TIME')
-- The removal comes first, as in claim.
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZADD', KEYS[2], time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[4], ARGV[1])
return {'postponed'}

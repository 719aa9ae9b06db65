--[[
touch: an attempt reports that it is not stuck. Its time to run starts anew.

KEYS[1]   record   HASH
KEYS[2]   due      ZSET
ARGV[1]   id
ARGV[2]   attempt
ARGV[3]   time_to_run_ms
ARGV[4]   token   of the claim
Returns   {"touched"} | {"fenced", state} | {"gone"}
Cost      O(log N) in records that are due some time
]]
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local found = redis.call('HMGET', KEYS[1], 'state', 'attempt', 'token')
if not found[1] then
  return {'gone'}
end
if found[1] ~= 'running' or found[2] ~= ARGV[2] or found[3] ~= ARGV[4] then
  return {'fenced', found[1]}
end
-- The removal comes first, as in claim.
redis.call('HDEL', KEYS[1], '')
redis.call('ZADD', KEYS[2], now_ms + ARGV[3], ARGV[1])
return {'touched'}

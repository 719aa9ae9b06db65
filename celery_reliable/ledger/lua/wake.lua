--[[
wake: a worker is alive that may run a task which waits for one. Or the task does not wait any more, and is taken
off the index of those that do.

KEYS[1]   record     HASH
KEYS[2]   due        ZSET
KEYS[3]   unplaced   HASH
ARGV[1]   id
ARGV[2]   is_there   "1": the worker is; "": only look whether the task waits
Returns   {"woken"} | {"waiting"} | {"changed"}
Cost      O(log N) in records that are due some time
]]
local found = redis.call('HMGET', KEYS[1], 'state', 'waiting_for')
if found[1] ~= 'parked' or found[2] ~= 'workers' then
  redis.call('HDEL', KEYS[3], ARGV[1])
  return {'changed'}
end
if ARGV[2] == '' then
  return {'waiting'}
end
local time = redis.call('TIME')
-- The removal comes first, as in claim.
redis.call('HDEL', KEYS[3], '')
redis.call('ZADD', KEYS[2], 'LT', time[1] * 1000 + math.floor(time[2] / 1000), ARGV[1])
return {'woken'}

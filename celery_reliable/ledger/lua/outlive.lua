--[[
outlive: a worker that was to stop an attempt is dead, or forgotten: what it ran is over with it.
As when the worker has acknowledged.

KEYS[1]   record   HASH
KEYS[2]   due      ZSET
KEYS[3]   worker   HASH   that was to stop it
ARGV[1]   id
ARGV[2]   worker
Returns   {"outlived"} | {"held", worker} | {"changed"}
          "held" by the worker, as long as it lives
Cost      O(log N) in records that are due some time
]]
local found = redis.call('HMGET', KEYS[1], 'state', 'stopping_on')
if found[2] ~= ARGV[2] then
  return {'changed'}
end
if redis.call('HGET', KEYS[3], 'state') == 'alive' then
  return {'held', found[2]}
end
local time = redis.call('TIME')
redis.call('HDEL', KEYS[1], 'stopping', 'stopping_on')
if found[1] == 'dead' then
  redis.call('HSET', KEYS[1], 'stopped', '1')
  redis.call('ZADD', KEYS[2], time[1] * 1000 + math.floor(time[2] / 1000), ARGV[1])
end
return {'outlived'}

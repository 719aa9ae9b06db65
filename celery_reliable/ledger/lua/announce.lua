--[[
announce: what a burial owed Celery (FAILURE stored, errbacks called, chord told) has been paid.

Moves     dead, owed -> dead
KEYS[1]   record   HASH
KEYS[2]   due      ZSET
ARGV[1]   id
ARGV[2]   buried_ms   that was seen
Returns   {"announced"} | {"changed"}
Cost      O(log N) in records that are due some time
]]
local found = redis.call('HMGET', KEYS[1], 'state', 'buried_ms')
if found[1] ~= 'dead' or found[2] ~= ARGV[2] then
  return {'changed'}
end
redis.call('HDEL', KEYS[1], 'owed')
redis.call('ZREM', KEYS[2], ARGV[1])
return {'announced'}

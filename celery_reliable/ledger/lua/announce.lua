--[[
announce: what a burial owed Celery (FAILURE stored, errbacks called, chord told) has been paid.

Moves     dead, owed -> dead
KEYS.record           task:<id>   HASH
KEYS.due              due         ZSET
ARGV.id
ARGV.buried_ms: int   that was seen
Returns   {"announced"} | {"changed"}
Cost      O(log N) in records that are due some time
]]
local found = redis.call('HMGET', KEYS.record, 'state', 'since_ms')
if found[1] ~= 'dead' or found[2] ~= ARGV.buried_ms then
  return {'changed'}
end
redis.call('HDEL', KEYS.record, 'owed')
redis.call('ZREM', KEYS.due, ARGV.id)
return {'announced'}

--[[
opened: a worker has opened a message and lives, so its note is removed. It may not know whether it had noted it.

KEYS[1]   worker   HASH
ARGV[1]   delivery   as it was noted
Returns   {"opened"} | {"changed"}
Cost      O(1)
]]
if redis.call('HGET', KEYS[1], 'opening') ~= ARGV[1] then
  return {'changed'}
end
redis.call('HDEL', KEYS[1], 'opening', 'opening_id', 'opening_epoch', 'opening_alone')
return {'opened'}

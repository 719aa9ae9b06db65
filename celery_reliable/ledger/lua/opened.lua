--[[
opened: a worker has opened a message and lives, so its note is removed. It may not know whether it had noted it.

KEYS.worker     worker:<worker>   HASH
ARGV.delivery   as it was noted
Returns   {"opened"} | {"changed"}
Cost      O(1)
]]
if redis.call('HGET', KEYS.worker, 'opening') ~= ARGV.delivery then
  return {'changed'}
end
redis.call('HDEL', KEYS.worker, 'opening', 'opening_id', 'opening_epoch', 'opening_alone')
return {'opened'}

--[[
unlist: take the own queue of workers that are gone off the list of such queues, unless a worker has registered for it.

KEYS.direct               direct   ZSET
ARGV.queue
ARGV.registered_ms        that was seen
Returns   {"unlisted"} | {"changed"}
Cost      O(log N) in queues
]]
if redis.call('ZSCORE', KEYS.direct, ARGV.queue) ~= ARGV.registered_ms then
  return {'changed'}
end
redis.call('ZREM', KEYS.direct, ARGV.queue)
return {'unlisted'}

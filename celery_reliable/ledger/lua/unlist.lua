--[[
unlist: take the own queue of workers that are gone off the list of such queues, unless a worker has registered for it.

KEYS[1]   direct   ZSET
ARGV[1]   queue
ARGV[2]   registered_ms   that was seen
Returns   {"unlisted"} | {"changed"}
Cost      O(log N) in queues
]]
if redis.call('ZSCORE', KEYS[1], ARGV[1]) ~= ARGV[2] then
  return {'changed'}
end
redis.call('ZREM', KEYS[1], ARGV[1])
return {'unlisted'}

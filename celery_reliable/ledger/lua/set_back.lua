--[[
set_back: the server's clock has stepped back, so times that were noted before lie too far ahead; set them back.

It is done in batches. A record that was noted after the step is looked at too early by that, which does no harm.

KEYS[1]   due    ZSET
KEYS[2]   meta   HASH
ARGV[1]   limit
Returns   {"set_back", count} | {"ended"}   "ended": that is all
Cost      O(limit * log N) in records that are due some time
]]
local meta = redis.call('HMGET', KEYS[2], 'behind_ms', 'behind_from_ms')
if not meta[1] then
  return {'ended'}
end
local found = redis.call('ZRANGEBYSCORE', KEYS[1], meta[2], '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[1])
-- The removal comes first, as in claim.
redis.call('HDEL', KEYS[2], '')
for n = 1, #found, 2 do
  redis.call('ZADD', KEYS[1], found[n + 1] - meta[1], found[n])
end
-- Records that were set back are no longer in the range that is read, so none is set back twice.
if #found < 2 * ARGV[1] then
  redis.call('HDEL', KEYS[2], 'behind_ms', 'behind_from_ms')
  return {'ended'}
end
redis.call('HSET', KEYS[2], 'behind_from_ms', found[#found])
return {'set_back', #found / 2}

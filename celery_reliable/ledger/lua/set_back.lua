--[[
set_back: the server's clock has stepped back, so times that were noted before lie too far ahead; set them back.

It is done in batches. A record that was noted after the step is looked at too early by that, which does no harm.

KEYS.due          due    ZSET
KEYS.meta         meta   HASH
ARGV.limit: int
Returns   {"set_back", count: int} | {"ended"}   "ended": that is all
Cost      O(limit * log N) in records that are due some time
]]
local meta = redis.call('HMGET', KEYS.meta, 'behind_ms', 'behind_from_ms')
if not meta[1] then
  return {'ended'}
end
local found = redis.call('ZRANGEBYSCORE', KEYS.due, meta[2], '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV.limit)
-- The removal comes first, as in claim.
redis.call('HDEL', KEYS.meta, '')
for n = 1, #found, 2 do
  redis.call('ZADD', KEYS.due, found[n + 1] - meta[1], found[n])
end
-- Records that were set back are no longer in the range that is read, so none is set back twice.
if #found < 2 * ARGV.limit then
  redis.call('HDEL', KEYS.meta, 'behind_ms', 'behind_from_ms')
  return {'ended'}
end
redis.call('HSET', KEYS.meta, 'behind_from_ms', found[#found])
return {'set_back', #found / 2}

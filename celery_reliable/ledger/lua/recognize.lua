--[[
recognize: a pass compares the queues' server with the one that the pass before it met.

If it is another one, or was emptied, messages are lost: the next pass looks at all that is queued, before it is due.

KEYS.meta     meta   HASH
ARGV.broker   what tells the server, and that it was not emptied
Returns   {"known"} | {"asked", since_ms: int}
          "known" also when nobody has met one before
Cost      O(1)
]]
local before = redis.call('HGET', KEYS.meta, 'broker')
if before == ARGV.broker then
  return {'known'}
end
redis.call('HSET', KEYS.meta, 'broker', ARGV.broker)
if not before then
  return {'known'}
end
-- Any queued message may be lost, however old it is.
redis.call('HSET', KEYS.meta, 'ahead_ms', 0)
redis.call('HINCRBY', KEYS.meta, 'ahead_count', 1)
return {'asked', 0}

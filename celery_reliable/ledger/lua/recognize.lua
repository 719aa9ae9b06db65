--[[
recognize: a pass compares the queues' server with the one that the pass before it met.

If it is another one, or was emptied, messages are lost: the next pass looks at all that is queued, before it is due.

KEYS[1]   meta     HASH
ARGV[1]   broker   what tells the server, and that it was not emptied
Returns   {"known"} | {"asked", since_ms}
          "known" also when nobody has met one before
Cost      O(1)
]]
local before = redis.call('HGET', KEYS[1], 'broker')
if before == ARGV[1] then
  return {'known'}
end
-- The removal comes first, as in claim.
redis.call('HDEL', KEYS[1], '')
redis.call('HSET', KEYS[1], 'broker', ARGV[1])
if not before then
  return {'known'}
end
-- Any queued message may be lost, however old it is.
redis.call('HSET', KEYS[1], 'ahead_ms', 0)
redis.call('HINCRBY', KEYS[1], 'ahead_count', 1)
return {'asked', 0}

--[[
look_ahead: messages may have been lost, so the next pass looks at all that is queued, before it is due.

KEYS.meta          meta   HASH
ARGV.ago_ms: int   how long ago the first of them may have been lost
Returns   {"asked", since_ms: int}
Cost      O(1)
]]
local since_ms = now_ms - ARGV.ago_ms
since_ms = math.min(since_ms, tonumber(redis.call('HGET', KEYS.meta, 'ahead_ms') or since_ms))
redis.call('HSET', KEYS.meta, 'ahead_ms', since_ms)
redis.call('HINCRBY', KEYS.meta, 'ahead_count', 1)
return {'asked', since_ms}

--[[
look_ahead: messages may have been lost, so the next pass looks at all that is queued, before it is due.

KEYS[1]   meta     HASH
ARGV[1]   ago_ms   how long ago the first of them may have been lost
Returns   {"asked", since_ms}
Cost      O(1)
]]
local time = redis.call('TIME')
local since_ms = time[1] * 1000 + math.floor(time[2] / 1000) - ARGV[1]
since_ms = math.min(since_ms, tonumber(redis.call('HGET', KEYS[1], 'ahead_ms') or since_ms))
-- The removal comes first, as in claim.
redis.call('HDEL', KEYS[1], '')
redis.call('HSET', KEYS[1], 'ahead_ms', since_ms)
redis.call('HINCRBY', KEYS[1], 'ahead_count', 1)
return {'asked', since_ms}

--[[
due: return the next records that are due, a bounded number of them.

KEYS.due          due   ZSET
KEYS.clock        clock HASH
ARGV.limit: int
Returns   {"batch", now_ms: int, ids_and_times...}
Cost      O(log N + limit)
]]
local reply = {'batch', now_ms}
for _, item in ipairs(redis.call('ZRANGEBYSCORE', KEYS.due, '-inf', now_ms, 'WITHSCORES', 'LIMIT', 0, ARGV.limit)) do
  reply[#reply + 1] = item
end
return reply

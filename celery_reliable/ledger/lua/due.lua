--[[
due: return the next records that are due, a bounded number of them.

KEYS[1]   due   ZSET
ARGV[1]   limit
Returns   {"due", now_ms, id, due_ms, ...}
Cost      O(log N + limit)
]]
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local reply = {'due', now_ms}
for _, item in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now_ms, 'WITHSCORES', 'LIMIT', 0, ARGV[1])) do
  reply[#reply + 1] = item
end
return reply

--[[
due: return the next records that are due, a bounded number of them; but for those that the waker is about to let out.

KEYS.due          due   ZSET
KEYS.later        later ZSET
KEYS.waker        waker STRING
ARGV.limit: int
Returns   {"batch", now_ms: int, ids_and_times...}
Cost      O(log N + limit)
]]
local reply = {'batch', now_ms}
local found = redis.call('ZRANGEBYSCORE', KEYS.due, '-inf', now_ms, 'WITHSCORES', 'LIMIT', 0, ARGV.limit)
local has_waker = redis.call('EXISTS', KEYS.waker) == 1
for i = 1, #found, 2 do
  if not has_waker or redis.call('ZSCORE', KEYS.later, found[i]) ~= found[i + 1] then
    reply[#reply + 1] = found[i]
    reply[#reply + 1] = found[i + 1]
  end
end
return reply

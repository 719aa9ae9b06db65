--[[
end_pass: a pass of the sweeper finished.

KEYS[1]   pass   STRING
KEYS[2]   meta   HASH
ARGV[1]   nonce    of this pass
ARGV[2]   report   JSON
Returns   {"ended"} | {"overtaken"}
Cost      O(1)
]]
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('HSET', KEYS[2], 'passed_ms', now_ms, 'report', ARGV[2])
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return {'overtaken'}
end
redis.call('DEL', KEYS[1])
return {'ended'}

--[[
end_pass: note that a pass of the sweeper has finished, with its report.

KEYS[1]   pass   STRING
KEYS[2]   meta   HASH
ARGV[1]   nonce         of this pass
ARGV[2]   report        JSON
ARGV[3]   ahead_count   as it was when the pass began, if all was looked at that was asked for; else ""
ARGV[4]   ended_ms      what the time should be, as the sweeper reckons from when it began; "": what it is
Returns   {"ended"} | {"overtaken"}
Cost      O(1)
]]
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
-- By the time that the sweeper reckons, the next pass notices a step of the clock during this one.
redis.call('HSET', KEYS[2], 'passed_ms', ARGV[4] ~= '' and ARGV[4] or now_ms, 'report', ARGV[2])
if ARGV[3] ~= '' and redis.call('HGET', KEYS[2], 'ahead_count') == ARGV[3] then
  redis.call('HDEL', KEYS[2], 'ahead_ms', 'ahead_count')
end
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return {'overtaken'}
end
redis.call('DEL', KEYS[1])
return {'ended'}

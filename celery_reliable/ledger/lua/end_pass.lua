--[[
end_pass: note that a pass of the sweeper has finished, with its report.

KEYS.pass             pass   STRING
KEYS.meta             meta   HASH
ARGV.nonce            of this pass
ARGV.report           JSON
ARGV.ahead_count      as it was when the pass began, if all was looked at that was asked for; else ""
ARGV.ended_ms?: int   what the time should be, as the sweeper reckons from when it began; "": what it is
ARGV.seen             which workers the pass has seen alive all the time, as text, for the next one; ""
Returns   {"ended"} | {"overtaken"}
Cost      O(1)
]]
-- By the time that the sweeper reckons, the next pass notices that the clock was set forward during this one. One that
-- began meanwhile has said when that was: it would not be seen any more.
local by = redis.call('HGET', KEYS.meta, 'passed_by')
if not by or by == ARGV.nonce then
  redis.call('HSET', KEYS.meta, 'passed_ms', ARGV.ended_ms ~= '' and math.min(now_ms, ARGV.ended_ms) or now_ms)
end
-- What two passes have seen at once nobody knows.
local is_alone = redis.call('GET', KEYS.pass) == ARGV.nonce
redis.call('HSET', KEYS.meta, 'report', ARGV.report, 'seen', is_alone and ARGV.seen or '')
if ARGV.ahead_count ~= '' and redis.call('HGET', KEYS.meta, 'ahead_count') == ARGV.ahead_count then
  redis.call('HDEL', KEYS.meta, 'ahead_ms', 'ahead_count')
end
if not is_alone then
  return {'overtaken'}
end
redis.call('DEL', KEYS.pass)
return {'ended'}

--[[
end_pass: note that a pass of the sweeper has finished, with its report; the first of an hour also forgets what was
counted more than a day ago.

KEYS.pass             pass      STRING
KEYS.meta             meta      HASH
KEYS.minutes          minutes   HASH
ARGV.nonce            of this pass
ARGV.report           JSON
ARGV.ahead_count      as it was when the pass began, if all was looked at that was asked for; else ""
ARGV.ended_ms?: int   what the time should be, as the sweeper reckons from when it began; "": what it is
ARGV.seen             which workers the pass has seen alive all the time, as text, for the next one; ""
Returns   {"ended"} | {"overtaken"}
Cost      O(1), with the first of an hour O(counts)
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
-- Counts are for people: nothing that is wrong with them may keep a pass from ending.
local hour = math.floor(now_ms / 3600000)
if tonumber(redis.pcall('HGET', KEYS.minutes, 'trimmed in') or -1) ~= hour then
  local items = redis.pcall('HGETALL', KEYS.minutes)
  for i = 1, #items, 2 do
    -- Also what a clock has left that was ahead.
    local minute = tonumber(string.match(items[i], '^(%d+) ') or hour * 60)
    if minute < hour * 60 - 1440 or minute > hour * 60 + 120 then
      redis.pcall('HDEL', KEYS.minutes, items[i])
    end
  end
  redis.pcall('HSET', KEYS.minutes, 'trimmed in', string.format('%.0f', hour))
  redis.pcall('PEXPIRE', KEYS.minutes, 86400000)
end
if not is_alone then
  return {'overtaken'}
end
redis.call('DEL', KEYS.pass)
return {'ended'}

--[[
end_pass: note that a pass of the sweeper has finished, with its report; the first of an hour also forgets what was
counted more than a day ago.

KEYS[1]   pass   STRING
KEYS[2]   meta   HASH
KEYS[3]   minutes  HASH
ARGV[1]   nonce         of this pass
ARGV[2]   report        JSON
ARGV[3]   ahead_count   as it was when the pass began, if all was looked at that was asked for; else ""
ARGV[4]   ended_ms      what the time should be, as the sweeper reckons from when it began; "": what it is
ARGV[5]   seen          which workers the pass has seen alive all the time, as text, for the next one; ""
Returns   {"ended"} | {"overtaken"}
Cost      O(1), with the first of an hour O(counts)
]]
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
-- The removal comes first, as in claim.
redis.call('HDEL', KEYS[2], '')
-- By the time that the sweeper reckons, the next pass notices a step of the clock during this one. One that began
-- meanwhile, by another clock, has said when that was: the step would not be seen any more.
local by = redis.call('HGET', KEYS[2], 'passed_by')
if not by or by == ARGV[1] then
  redis.call('HSET', KEYS[2], 'passed_ms', ARGV[4] ~= '' and ARGV[4] or now_ms)
end
redis.call('HSET', KEYS[2], 'report', ARGV[2])
if ARGV[3] ~= '' and redis.call('HGET', KEYS[2], 'ahead_count') == ARGV[3] then
  redis.call('HDEL', KEYS[2], 'ahead_ms', 'ahead_count')
end
-- Counts are for people: nothing that is wrong with them may keep a pass from ending.
local hour = math.floor(now_ms / 3600000)
if tonumber(redis.pcall('HGET', KEYS[3], 'trimmed in') or -1) ~= hour then
  local items = redis.pcall('HGETALL', KEYS[3])
  for i = 1, #items, 2 do
    -- Also what a clock has left that was ahead.
    local minute = tonumber(string.match(items[i], '^(%d+) ') or hour * 60)
    if minute < hour * 60 - 1440 or minute > hour * 60 + 120 then
      redis.pcall('HDEL', KEYS[3], items[i])
    end
  end
  redis.pcall('HSET', KEYS[3], 'trimmed in', string.format('%.0f', hour))
  redis.pcall('PEXPIRE', KEYS[3], 86400000)
end
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  -- What two passes have seen at once nobody knows.
  redis.call('HDEL', KEYS[2], 'seen')
  return {'overtaken'}
end
redis.call('DEL', KEYS[1])
if ARGV[5] ~= '' then
  redis.call('HSET', KEYS[2], 'seen', ARGV[5])
end
return {'ended'}

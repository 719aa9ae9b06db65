--[[
note: what happened is noted for people, beside what happened lately, of which the oldest goes, and counted within its
hour.  Of one kind so many are noted in a minute: a storm does not push out all others.  What is more is only counted.

KEYS[1]   happened   STREAM
KEYS[2]   hours      HASH
ARGV[1]   kind     name of the event
ARGV[2]   of       what it is counted apart by, such as the cause of a loss; ""
ARGV[3]   about    JSON
ARGV[4]   most     so many are kept, or a few more
ARGV[5]   at_once  so many of a kind are noted in a minute
Returns   {"noted"}
Cost      O(1)
]]
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local counted = ARGV[2] ~= '' and ARGV[1] .. ':' .. ARGV[2] or ARGV[1]
-- The removal comes first, as in claim.
redis.call('HDEL', KEYS[2], '')
redis.call('HINCRBY', KEYS[2], string.format('%.0f ', math.floor(now_ms / 3600000)) .. counted, 1)
local minute = string.format('%.0f', math.floor(now_ms / 60000))
local last, count = string.match(redis.call('HGET', KEYS[2], 'minute of ' .. ARGV[1]) or '', '^(%d+) (%d+)$')
count = last == minute and count + 1 or 1
if count > tonumber(ARGV[5]) then
  return {'noted'}
end
redis.call('HSET', KEYS[2], 'minute of ' .. ARGV[1], string.format('%s %.0f', minute, count))
redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[4], '*', 'kind', ARGV[1], 'about', ARGV[3],
  'at_ms', string.format('%.0f', now_ms), 'is_last', count == tonumber(ARGV[5]) and '1' or '')
return {'noted'}

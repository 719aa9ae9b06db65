--[[
note: what happened is noted for people, beside what happened lately, of which the oldest goes.  All that happens is
counted, and a lost attempt within its minute, too.  Of one kind so many are noted in a minute: a storm does not push
out all others.

KEYS[1]   happened   STREAM
KEYS[2]   minutes    HASH
ARGV[1]   kind     name of the event
ARGV[2]   about    JSON
ARGV[3]   most     so many are kept, or a few more
ARGV[4]   at_once  so many of a kind are noted in a minute
ARGV[5]   counted  what it is counted as
ARGV[6]   counts   from so many on, what has not been counted before is counted as nameless
ARGV[7]   nameless the same without the name of the task
Returns   {"noted"}
Cost      O(1)
]]
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local minute = string.format('%.0f', math.floor(now_ms / 60000))
-- The removal comes first, as in claim.
redis.call('HDEL', KEYS[2], '')
if ARGV[1] == 'task_lost' then
  redis.call('HINCRBY', KEYS[2], minute .. ' lost', 1)
end
local total = 'total ' .. ARGV[5]
if not redis.call('HGET', KEYS[2], total) and redis.call('HLEN', KEYS[2]) >= tonumber(ARGV[6]) then
  total = 'total ' .. ARGV[7]
end
redis.call('HINCRBY', KEYS[2], total, 1)
local last, count = string.match(redis.call('HGET', KEYS[2], 'minute of ' .. ARGV[1]) or '', '^(%d+) (%d+)$')
count = last == minute and count + 1 or 1
if count > tonumber(ARGV[4]) then
  return {'noted'}
end
redis.call('HSET', KEYS[2], 'minute of ' .. ARGV[1], string.format('%s %.0f', minute, count))
redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[3], '*', 'kind', ARGV[1], 'about', ARGV[2],
  'at_ms', string.format('%.0f', now_ms), 'is_last', count == tonumber(ARGV[4]) and '1' or '')
return {'noted'}

--[[
note: what happened is noted for people, beside what happened lately, of which the oldest goes.  All that happens is
counted, and a lost attempt within its minute, too.  Of one kind so many are noted in a minute: a storm does not push
out all others.

KEYS.happened       happened   STREAM
KEYS.minutes        minutes    HASH
ARGV.kind           name of the event
ARGV.about          JSON
ARGV.most: int      so many are kept, or a few more
ARGV.at_once: int   so many of a kind are noted in a minute
ARGV.counted        what it is counted as
ARGV.counts: int    from so many on, what has not been counted before is counted as nameless
ARGV.nameless       the same without the name of the task
Returns   {"noted"}
Cost      O(1)
]]
local minute = string.format('%.0f', math.floor(now_ms / 60000))
if ARGV.kind == 'task_lost' then
  redis.call('HINCRBY', KEYS.minutes, minute .. ' lost', 1)
end
local total = 'total ' .. ARGV.counted
if not redis.call('HGET', KEYS.minutes, total) and redis.call('HLEN', KEYS.minutes) >= tonumber(ARGV.counts) then
  total = 'total ' .. ARGV.nameless
end
redis.call('HINCRBY', KEYS.minutes, total, 1)
local last, count = string.match(redis.call('HGET', KEYS.minutes, 'minute of ' .. ARGV.kind) or '', '^(%d+) (%d+)$')
count = last == minute and count + 1 or 1
if count > tonumber(ARGV.at_once) then
  return {'noted'}
end
redis.call('HSET', KEYS.minutes, 'minute of ' .. ARGV.kind, string.format('%s %.0f', minute, count))
redis.call('XADD', KEYS.happened, 'MAXLEN', '~', ARGV.most, '*', 'kind', ARGV.kind, 'about', ARGV.about,
  'at_ms', string.format('%.0f', now_ms), 'is_last', count == tonumber(ARGV.at_once) and '1' or '')
return {'noted'}

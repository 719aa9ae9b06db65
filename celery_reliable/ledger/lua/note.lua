--[[
note: what happened is noted for people, beside what happened lately, of which the oldest goes.  All that happens is
counted.  Of one kind so many are noted in a minute: a storm does not push out all others.

KEYS.happened       happened   STREAM
KEYS.counts         counts     HASH
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
local total = ARGV.counted
if not redis.call('HGET', KEYS.counts, total) and redis.call('HLEN', KEYS.counts) >= tonumber(ARGV.counts) then
  total = ARGV.nameless
end
redis.call('HINCRBY', KEYS.counts, total, 1)
local last, count = string.match(redis.call('HGET', KEYS.counts, 'minute of ' .. ARGV.kind) or '', '^(%d+) (%d+)$')
count = last == minute and count + 1 or 1
if count > tonumber(ARGV.at_once) then
  return {'noted'}
end
redis.call('HSET', KEYS.counts, 'minute of ' .. ARGV.kind, string.format('%s %.0f', minute, count))
redis.call('XADD', KEYS.happened, 'MAXLEN', '~', ARGV.most, '*', 'kind', ARGV.kind, 'about', ARGV.about,
  'at_ms', string.format('%.0f', now_ms), 'is_last', count == tonumber(ARGV.at_once) and '1' or '')
return {'noted'}

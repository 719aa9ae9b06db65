--[[
audit: note what an operator does. The log is capped: the oldest notes are dropped.

KEYS[1]   audit   STREAM
ARGV[1]   token   names this note
ARGV[2]   about   JSON
ARGV[3]   most    so many are kept, or a few more
Returns   {"audited"}
Cost      O(1)
]]
for _, entry in ipairs(redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 50)) do
  if entry[2][2] == ARGV[1] then
    return {'audited'}
  end
end
local time = redis.call('TIME')
-- A removal comes first, as in claim: an operator can make room on a full server. That it fails, as nothing is removed
-- from a stream so, is no matter.
redis.pcall('ZREM', KEYS[1], '')
redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[3], '*', 'token', ARGV[1], 'about', ARGV[2],
  'at_ms', string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000)))
return {'audited'}

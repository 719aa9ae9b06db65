--[[
audit: note what an operator does. The log is capped: the oldest notes are dropped.

KEYS.audit       audit   STREAM
KEYS.clock       clock   HASH
ARGV.token       names this note
ARGV.about       JSON
ARGV.most: int   so many are kept, or a few more
Returns   {"audited"}
Cost      O(1)
]]
for _, entry in ipairs(redis.call('XREVRANGE', KEYS.audit, '+', '-', 'COUNT', 50)) do
  if entry[2][2] == ARGV.token then
    return {'audited'}
  end
end
-- A removal comes first, as in claim: an operator can make room on a full server. That it fails, as nothing is removed
-- from a stream so, is no matter.
redis.pcall('ZREM', KEYS.audit, '')
redis.call('XADD', KEYS.audit, 'MAXLEN', '~', ARGV.most, '*', 'token', ARGV.token, 'about', ARGV.about,
  'at_ms', string.format('%.0f', now_ms))
return {'audited'}

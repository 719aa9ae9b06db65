--[[
audit: note what an operator does. The log is capped: the oldest notes are dropped.

KEYS.audit       audit   STREAM
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
redis.call('XADD', KEYS.audit, 'MAXLEN', '~', ARGV.most, '*', 'token', ARGV.token, 'about', ARGV.about,
  'at_ms', string.format('%.0f', now_ms))
return {'audited'}

--[[
read: somebody reads the message of a dead letter that perhaps nobody has opened before.

Whoever reads it may die of it. If that happens, the message is sealed: nobody reads it again.

KEYS.record           task:<id>   HASH
ARGV.buried_ms: int   that was seen
ARGV.reader           names this reading
ARGV.is_over: flag    "1": it was read; else ""
Returns   {"opening"} | {"opened"} | {"sealed"} | {"changed"}
Cost      O(1)
]]
local found = redis.call('HMGET', KEYS.record, 'state', 'since_ms', 'read_by', 'sealed')
if found[1] ~= 'dead' or found[2] ~= ARGV.buried_ms then
  return {'changed'}
end
if ARGV.is_over == '1' then
  if found[3] == ARGV.reader then
    redis.call('HDEL', KEYS.record, 'read_by')
  end
  return {'opened'}
end
if found[4] or (found[3] and found[3] ~= ARGV.reader) then
  redis.call('HSET', KEYS.record, 'sealed', '1')
  return {'sealed'}
end
redis.call('HSET', KEYS.record, 'read_by', ARGV.reader)
return {'opening'}

--[[
read: somebody reads the message of a dead letter that perhaps nobody has opened before.

Whoever reads it may die of it. If that happens, the message is sealed: nobody reads it again.

KEYS[1]   record   HASH
ARGV[1]   buried_ms   that was seen
ARGV[2]   reader      names this reading
ARGV[3]   is_over     "1": it was read; else ""
Returns   {"opening"} | {"opened"} | {"sealed"} | {"changed"}
Cost      O(1)
]]
local found = redis.call('HMGET', KEYS[1], 'state', 'buried_ms', 'read_by', 'sealed')
if found[1] ~= 'dead' or found[2] ~= ARGV[1] then
  return {'changed'}
end
if ARGV[3] == '1' then
  if found[3] == ARGV[2] then
    redis.call('HDEL', KEYS[1], 'read_by')
  end
  return {'opened'}
end
-- The removal comes first, as in claim.
redis.call('HDEL', KEYS[1], '')
if found[4] or (found[3] and found[3] ~= ARGV[2]) then
  redis.call('HSET', KEYS[1], 'sealed', '1')
  return {'sealed'}
end
redis.call('HSET', KEYS[1], 'read_by', ARGV[2])
return {'opening'}

--[[
discard: an operator, or retention, removes a dead letter for good.

Moves     dead -> absent
KEYS[1]   record   HASH
KEYS[2]   due      ZSET
KEYS[3]   dead     ZSET
ARGV[1]   id
ARGV[2]   buried_ms   that was seen; "" for whichever is there
Returns   {"discarded"} | {"absent"} | {"not_dead", state}
Cost      O(log N) in dead letters
]]
local found = redis.call('HMGET', KEYS[1], 'state', 'buried_ms')
if not found[1] then
  redis.call('ZREM', KEYS[3], ARGV[1])
  return {'absent'}
end
if found[1] ~= 'dead' or (ARGV[2] ~= '' and found[2] ~= ARGV[2]) then
  return {'not_dead', found[1]}
end
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[3], ARGV[1])
return {'discarded'}

--[[
unlock: an attempt whose body is over frees its object, while its record goes on.

Moves     held by this attempt -> free
KEYS[1]   lock     STRING   "<attempt>:<id>"
KEYS[2]   record   HASH     of the id: one that was published anew has the same numbers, and its own object
ARGV[1]   id
ARGV[2]   attempt
ARGV[3]   token     of the claim
ARGV[4]   object    which the record notes no longer
Returns   {"unlocked"} | {"not_held"}
Cost      O(1)
]]
if redis.call('GET', KEYS[1]) ~= ARGV[2] .. ':' .. ARGV[1] then
  return {'not_held'}
end
local found = redis.call('HMGET', KEYS[2], 'state', 'token', 'attempt', 'object')
if (found[2] and found[2] ~= ARGV[3]) or (found[1] and tonumber(found[3] or 0) < tonumber(ARGV[2])) then
  return {'not_held'}
end
redis.call('DEL', KEYS[1])
if found[4] == ARGV[4] then
  redis.call('HDEL', KEYS[2], 'object')
end
return {'unlocked'}

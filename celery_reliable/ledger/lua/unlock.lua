--[[
unlock: free the lock of one object, if this attempt still holds it.

Moves     held by this attempt -> free
KEYS[1]   lock   STRING   "<attempt>:<id>"
ARGV[1]   id
ARGV[2]   attempt
Returns   {"unlocked"} | {"not_held"}
Cost      O(1)
]]
if redis.call('GET', KEYS[1]) ~= ARGV[2] .. ':' .. ARGV[1] then
  return {'not_held'}
end
redis.call('DEL', KEYS[1])
return {'unlocked'}

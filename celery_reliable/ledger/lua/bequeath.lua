--[[
bequeath: an attempt is about to publish a canvas whose last member has its id.
From now on anybody may publish the id, while the attempt still runs: a short canvas can get to its last member
before the attempt has ended.

KEYS[1]   record   HASH
ARGV[1]   attempt
ARGV[2]   token     of the claim
Returns   {"bequeathed"} | {"fenced", state} | {"gone"}
Cost      O(1)
]]
local found = redis.call('HMGET', KEYS[1], 'state', 'attempt', 'token')
if not found[1] then
  return {'gone'}
end
if found[1] ~= 'running' or found[2] ~= ARGV[1] or found[3] ~= ARGV[2] then
  return {'fenced', found[1]}
end
redis.call('HSET', KEYS[1], 'heir', '1')
return {'bequeathed'}

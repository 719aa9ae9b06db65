--[[
bequeath: an attempt is about to publish a canvas whose last member has the attempt's own id.

From now on that member may publish the id while the attempt still runs, because a short canvas can reach its last
member before the attempt has ended.

KEYS[1]   record   HASH
ARGV[1]   attempt
ARGV[2]   token     of the claim
ARGV[3]   heir      names this replacement; the canvas's members carry it
Returns   {"bequeathed", used} | {"fenced", state} | {"gone"}
          with "1" where a task that had the id before may have left a result
Cost      O(1)
]]
local found = redis.call('HMGET', KEYS[1], 'state', 'attempt', 'token', 'used')
if not found[1] then
  return {'gone'}
end
if found[1] ~= 'running' or found[2] ~= ARGV[1] or found[3] ~= ARGV[2] then
  return {'fenced', found[1]}
end
-- The removal comes first, as in claim.
redis.call('HDEL', KEYS[1], '')
redis.call('HSET', KEYS[1], 'heir', ARGV[3])
return {'bequeathed', found[4] or ''}

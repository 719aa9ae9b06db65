--[[
conclude: an attempt is about to store its outcome. Its object is freed some steps later.

Somebody may see the outcome before the object is free, and call the task again. That call must not be answered with
the task that is over.

KEYS[1]   record   HASH
ARGV[1]   attempt
ARGV[2]   token     of the claim
Returns   {"concluding"} | {"fenced", state} | {"gone"}
Cost      O(1)
]]
local found = redis.call('HMGET', KEYS[1], 'state', 'attempt', 'token')
if not found[1] then
  return {'gone'}
end
if found[1] ~= 'running' or found[2] ~= ARGV[1] or found[3] ~= ARGV[2] then
  return {'fenced', found[1]}
end
-- The removal comes first, as in claim.
redis.call('HDEL', KEYS[1], '')
-- The note names the claim, so nobody has to remove it when another attempt begins.
redis.call('HSET', KEYS[1], 'concluding', ARGV[2])
return {'concluding'}

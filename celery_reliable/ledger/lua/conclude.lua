--[[
conclude: the outcome of an attempt is about to be stored, and its object will be free some steps later.
Who has seen the outcome by then is not answered with it, if he calls the task again.

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
-- The note names the claim, so nobody has to remove it when another attempt begins.
redis.call('HSET', KEYS[1], 'concluding', ARGV[2])
return {'concluding'}

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
-- Of this very claim: nobody has to take it back.
redis.call('HSET', KEYS[1], 'concluding', ARGV[2])
return {'concluding'}

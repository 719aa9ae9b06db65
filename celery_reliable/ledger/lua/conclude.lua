--[[
conclude: an attempt is about to store its outcome. Its object is freed some steps later.

Somebody may see the outcome before the object is free, and call the task again. That call must not be answered with
the task that is over.

KEYS.record         task:<id>   HASH
ARGV.attempt: int
ARGV.token          of the claim
Returns   {"concluding"} | {"fenced", state} | {"gone"}
Cost      O(1)
]]
local found = redis.call('HMGET', KEYS.record, 'state', 'attempt', 'token')
if not found[1] then
  return {'gone'}
end
if found[1] ~= 'running' or found[2] ~= ARGV.attempt or found[3] ~= ARGV.token then
  return {'fenced', found[1]}
end
-- The note names the claim, so nobody has to remove it when another attempt begins.
redis.call('HSET', KEYS.record, 'concluding', ARGV.token)
return {'concluding'}

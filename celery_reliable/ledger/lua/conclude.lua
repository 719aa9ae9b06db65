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
local found = redis.call('HMGET', KEYS.record, 'state', 'attempt', 'claim')
local refused = refusal(unpack(found))
if refused then return refused end
redis.call('HSET', KEYS.record, 'concluding', '1')
return {'concluding'}

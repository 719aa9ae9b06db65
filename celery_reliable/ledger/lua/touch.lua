--[[
touch: an attempt reports that it is not stuck. Its time to run starts anew.

KEYS.record                task:<id>   HASH
KEYS.due                   due         ZSET
ARGV.id
ARGV.attempt: int
ARGV.time_to_run_ms: int
ARGV.token                 of the claim
Returns   {"touched"} | {"fenced", state} | {"gone"}
Cost      O(log N) in records that are due some time
]]
local found = redis.call('HMGET', KEYS.record, 'state', 'attempt', 'claim')
local refused = refusal(unpack(found))
if refused then return refused end
redis.call('ZADD', KEYS.due, now_ms + ARGV.time_to_run_ms, ARGV.id)
return {'touched'}

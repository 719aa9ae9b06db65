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
local found = redis.call('HMGET', KEYS.record, 'state', 'attempt', 'token')
if not found[1] then
  return {'gone'}
end
if found[1] ~= 'running' or found[2] ~= ARGV.attempt or found[3] ~= ARGV.token then
  return {'fenced', found[1]}
end
redis.call('ZADD', KEYS.due, now_ms + ARGV.time_to_run_ms, ARGV.id)
return {'touched'}

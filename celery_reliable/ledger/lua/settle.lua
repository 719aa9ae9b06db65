--[[
settle: an attempt reports its outcome.

Moves     running(attempt) -> absent
KEYS[1]   record   HASH
KEYS[2]   due      ZSET
KEYS[3]   claims   HASH   of the worker that runs the attempt
ARGV[1]   id
ARGV[2]   attempt
ARGV[3]   token   of the claim: an id that is published again after it ended begins at 1 again
Returns   {"settled"} | {"fenced", state} | {"gone"}   ("gone" to a repeated call means that the first one settled)
Cost      O(log N) in records that are due some time
]]
local found = redis.call('HMGET', KEYS[1], 'state', 'attempt', 'token')
if not found[1] then
  return {'gone'}
end
if found[1] ~= 'running' or found[2] ~= ARGV[2] or found[3] ~= ARGV[3] then
  return {'fenced', found[1]}
end
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('HDEL', KEYS[3], ARGV[1])
return {'settled'}

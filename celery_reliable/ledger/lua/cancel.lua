--[[
cancel: a task that nobody runs is called off: revoked, expired or purged.

Moves     queued | parked | waiting -> absent
KEYS[1]   record   HASH
KEYS[2]   due      ZSET
ARGV[1]   id
ARGV[2]   epoch   of the publication that is called off; "" for whichever is current
Returns   {"cancelled"} | {"running", owner} | {"dead"} | {"stale"} | {"gone"}
Cost      O(log N) in records that are due some time
]]
local found = redis.call('HMGET', KEYS[1], 'state', 'epoch', 'owner')
if not found[1] then
  return {'gone'}
end
if found[1] == 'running' then
  return {'running', found[3]}
end
if found[1] == 'dead' then
  return {'dead'}
end
if ARGV[2] ~= '' and found[2] ~= ARGV[2] then
  return {'stale'}
end
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], ARGV[1])
return {'cancelled'}

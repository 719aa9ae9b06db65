--[[
withdraw: take back a publication whose send raised.

Moves     queued | parked -> absent   (the very publication, never claimed, and no call was answered with it)
KEYS[1]   record   HASH
KEYS[2]   due      ZSET
ARGV[1]   id
ARGV[2]   epoch
Returns   {"withdrawn"} | {"kept", state} | {"gone"}
Cost      O(log N) in records that are due some time
]]
local found = redis.call('HMGET', KEYS[1], 'state', 'epoch', 'attempt', 'relied')
if not found[1] then
  return {'gone'}
end
if found[2] ~= ARGV[2] or found[3] or found[4] or (found[1] ~= 'queued' and found[1] ~= 'parked') then
  return {'kept', found[1]}
end
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], ARGV[1])
return {'withdrawn'}

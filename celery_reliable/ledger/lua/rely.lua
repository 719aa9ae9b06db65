--[[
rely: a call of a unique task is answered with the task that has the object, which must not be withdrawn then.

KEYS[1]   record   HASH   of the task that has the object
Returns   {"exists", state} | {"dead"} | {"gone"}
Cost      O(1)
]]
local found = redis.call('HMGET', KEYS[1], 'state', 'called_off')
local state = found[1]
if not state or found[2] then
  return {'gone'}
end
if state == 'dead' then
  return {'dead'}
end
redis.call('HSET', KEYS[1], 'relied', '1')
return {'exists', state}

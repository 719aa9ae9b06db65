--[[
rely: a call of a unique task is answered with the task that has the object. That one must not be withdrawn any more.

KEYS[1]   record   HASH   of the task that has the object
ARGV[1]   waited   "1": it has been waited for one whose outcome is being stored; else ""
Returns   {"exists", state} | {"dead"} | {"gone"} | {"concluding"}
          "concluding": its outcome may be known already, and its object is about to be free
Cost      O(1)
]]
local found = redis.call('HMGET', KEYS[1], 'state', 'called_off', 'token', 'concluding')
local state = found[1]
if not state or found[2] then
  return {'gone'}
end
if state == 'dead' then
  return {'dead'}
end
if state == 'running' and found[4] == found[3] and ARGV[1] == '' then
  return {'concluding'}
end
-- The removal comes first, as in claim.
redis.call('HDEL', KEYS[1], '')
redis.call('HSET', KEYS[1], 'relied', '1')
return {'exists', state}

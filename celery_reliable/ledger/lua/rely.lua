--[[
rely: a call of a unique task is answered with the task that has the object. That one must not be withdrawn any more.

KEYS.record         task:<id>   HASH of the task that has the object
ARGV.waited: flag   "1": it has been waited for one whose outcome is being stored; else ""
Returns   {"exists", state} | {"dead"} | {"gone"} | {"concluding"}
          "concluding": its outcome may be known already, and its object is about to be free
Cost      O(1)
]]
local found = redis.call('HMGET', KEYS.record, 'state', 'called_off', 'token', 'concluding')
local state = found[1]
if not state or found[2] then
  return {'gone'}
end
if state == 'dead' then
  return {'dead'}
end
if state == 'running' and found[4] == found[3] and ARGV.waited == '' then
  return {'concluding'}
end
-- The removal comes first, as in claim.
redis.call('HDEL', KEYS.record, '')
redis.call('HSET', KEYS.record, 'relied', '1')
return {'exists', state}

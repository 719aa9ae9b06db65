--[[
keep: leave an object locked for some time after an attempt's success, before that is settled.

Moves     held by this attempt -> kept
KEYS[1]   lock     STRING   "<attempt>:<id>"
KEYS[2]   record   HASH     of the id; notes that its own later attempt may walk in
ARGV[1]   id
ARGV[2]   attempt
ARGV[3]   token     of the claim
ARGV[4]   keep_ms   how long
Returns   {"kept"} | {"not_held"}
Cost      O(1)
]]
local kept = 'kept:' .. ARGV[1]
local value = redis.call('GET', KEYS[1])
if value == kept then
  return {'kept'}
end
local found = redis.call('HMGET', KEYS[2], 'state', 'token')
-- What was lost is another attempt's, which could not walk into an object that is kept.
if value ~= ARGV[2] .. ':' .. ARGV[1] or (found[1] and found[2] ~= ARGV[3]) then
  return {'not_held'}
end
redis.call('SET', KEYS[1], kept, 'PX', ARGV[4])
if found[1] then
  redis.call('HSET', KEYS[2], 'kept', '1')
end
return {'kept'}

--[[
divert: a message of the task is where nobody may run it. It is to be sent again from its record, to somebody else.

KEYS[1]   record   HASH
KEYS[2]   due      ZSET
ARGV[1]   id
ARGV[2]   epoch    of the message
Returns   {"diverted"} | {"changed"} | {"absent"}
          "changed": the message is a late copy, and the task goes on without it
Cost      O(log N) in records that are due some time
]]
local found = redis.call('HMGET', KEYS[1], 'state', 'epoch')
if not found[1] then
  return {'absent'}
end
if found[1] ~= 'queued' or found[2] ~= ARGV[2] then
  return {'changed'}
end
local time = redis.call('TIME')
redis.call('HDEL', KEYS[1], 'resends')
redis.call('HSET', KEYS[1], 'unsent', '1')
redis.call('ZADD', KEYS[2], time[1] * 1000 + math.floor(time[2] / 1000), ARGV[1])
return {'diverted'}

--[[
divert: a message of the task is where nobody may run it. It is to be sent again from its record, to somebody else.

KEYS.record   task:<id>   HASH
KEYS.due      due         ZSET
ARGV.id
ARGV.epoch    of the message
Returns   {"diverted"} | {"changed"} | {"absent"}
          "changed": the message is a late copy, and the task goes on without it
Cost      O(log N) in records that are due some time
]]
local found = redis.call('HMGET', KEYS.record, 'state', 'epoch', 'unsent')
if not found[1] then
  return {'absent'}
end
if found[1] ~= 'queued' or found[2] ~= ARGV.epoch then
  return {'changed'}
end
if found[3] and tonumber(redis.call('ZSCORE', KEYS.due, ARGV.id) or math.huge) <= now_ms then
  return {'diverted'}
end
redis.call('HDEL', KEYS.record, 'resends')
redis.call('HSET', KEYS.record, 'unsent', '1')
redis.call('ZADD', KEYS.due, now_ms, ARGV.id)
return {'diverted'}

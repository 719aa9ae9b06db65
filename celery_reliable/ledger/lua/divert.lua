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
local found = redis.call('HMGET', KEYS[1], 'state', 'epoch', 'unsent')
if not found[1] then
  return {'absent'}
end
if found[1] ~= 'queued' or found[2] ~= ARGV[2] then
  return {'changed'}
end
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
if found[3] and tonumber(redis.call('ZSCORE', KEYS[2], ARGV[1]) or math.huge) <= now_ms then
  return {'diverted'}
end
redis.call('HDEL', KEYS[1], 'resends')
redis.call('HSET', KEYS[1], 'unsent', '1')
redis.call('ZADD', KEYS[2], now_ms, ARGV[1])
return {'diverted'}

--[[
stop: tell the worker that runs a task to end it; the worker hears it with its next beat.

KEYS[1]   record   HASH
KEYS[2]   stops    HASH   of the worker that was seen to run it
ARGV[1]   id
ARGV[2]   owner    that worker
ARGV[3]   how      "stop": its process is asked to; "kill": it is killed
Returns   {"told", owner} | {"changed"}
Cost      O(1)
]]
local found = redis.call('HMGET', KEYS[1], 'state', 'owner', 'attempt', 'token', 'revoked')
if found[1] ~= 'running' or found[2] ~= ARGV[2] or not found[5] then
  return {'changed'}
end
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], found[3] .. ' ' .. ARGV[3] .. ' ' .. found[4])
return {'told', found[2]}

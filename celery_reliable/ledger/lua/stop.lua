--[[
stop: tell the worker that runs a task to end it; the worker hears it with its next beat.

KEYS.record   task:<id>       HASH
KEYS.stops    stops:<owner>   HASH of the worker that was seen to run it
ARGV.id
ARGV.owner    that worker
ARGV.how      "stop": its process is asked to; "kill": it is killed
Returns   {"told", owner} | {"changed"}
Cost      O(1)
]]
local found = redis.call('HMGET', KEYS.record, 'state', 'claim', 'attempt', 'revoked')
local token, _, _, owner = parts_of(found[2])
if found[1] ~= 'running' or owner ~= ARGV.owner or not found[4] then
  return {'changed'}
end
redis.call('HSET', KEYS.stops, ARGV.id, found[3] .. ' ' .. ARGV.how .. ' ' .. token)
return {'told', owner}

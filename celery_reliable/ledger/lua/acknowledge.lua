--[[
acknowledge: a worker has stopped a claim that was taken from it.

KEYS[1]   taken   HASH   id -> "<attempt> <token>"
ARGV[1]   id
ARGV[2]   claim   "<attempt> <token>", as the heartbeat told it
Returns   {"acknowledged"} | {"changed"}
Cost      O(1)
]]
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then
  return {'changed'}
end
redis.call('HDEL', KEYS[1], ARGV[1])
return {'acknowledged'}

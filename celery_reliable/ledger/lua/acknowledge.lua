--[[
acknowledge: a worker has stopped a claim that was taken from it.
Whatever became of its task meanwhile waited for that, and is due now: queued, it may be claimed; called off, it
may go; dead, its object may be freed.

KEYS[1]   taken   HASH   id -> "<attempt> <token>"
KEYS[2]   record  HASH
KEYS[3]   due     ZSET
ARGV[1]   id
ARGV[2]   claim   "<attempt> <token>", as the heartbeat told it
Returns   {"acknowledged"} | {"changed"}
Cost      O(log N) in records that are due some time
]]
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then
  return {'changed'}
end
redis.call('HDEL', KEYS[1], ARGV[1])
local found = redis.call('HMGET', KEYS[2], 'state', 'stopping')
if found[2] == ARGV[2] then
  local time = redis.call('TIME')
  redis.call('HDEL', KEYS[2], 'stopping', 'stopping_on')
  if found[1] == 'dead' then
    redis.call('HSET', KEYS[2], 'stopped', '1')
  end
  if found[1] ~= 'parked' then
    redis.call('ZADD', KEYS[3], time[1] * 1000 + math.floor(time[2] / 1000), ARGV[1])
  end
end
return {'acknowledged'}

--[[
acknowledge: a worker has stopped an attempt that was taken from it.

The task may not go on before that. If it is queued, it is due now and may be claimed. If it was called off, it is
due now and may end. If it is dead, its object is freed.

Moves     held by this task -> free   (the task is dead)
KEYS[1]   taken   HASH   id -> "<attempt> <token>"
KEYS[2]   record  HASH
KEYS[3]   due     ZSET
KEYS[4]   lock    STRING   of the object; "none" for none
ARGV[1]   id
ARGV[2]   claim   "<attempt> <token>", as the heartbeat told it
ARGV[3]   object  whose lock is given; "" for none
Returns   {"acknowledged"} | {"changed"} | {"object", object}
          "object": the record of what is dead notes another one than was given, and nothing was changed
Cost      O(log N) in records that are due some time
]]
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then
  return {'changed'}
end
local found = redis.call('HMGET', KEYS[2], 'state', 'stopping', 'object')
local is_freed = found[1] == 'dead' and found[2] == ARGV[2]
if is_freed and found[3] and found[3] ~= ARGV[3] then
  return {'object', found[3]}
end
redis.call('HDEL', KEYS[1], ARGV[1])
if found[2] == ARGV[2] then
  redis.call('HDEL', KEYS[2], 'stopping', 'stopping_on')
  if found[1] ~= 'parked' and found[1] ~= 'dead' then
    local time = redis.call('TIME')
    redis.call('ZADD', KEYS[3], time[1] * 1000 + math.floor(time[2] / 1000), ARGV[1])
  end
end
if is_freed and ARGV[3] ~= '' then
  redis.call('HDEL', KEYS[2], 'object')
  if string.match(redis.call('GET', KEYS[4]) or '', '^%d+:(.*)$') == ARGV[1] then
    redis.call('DEL', KEYS[4])
  end
end
return {'acknowledged'}

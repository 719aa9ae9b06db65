--[[
acknowledge: a worker has stopped an attempt that was taken from it.

The task may not go on before that. If it is queued, it is due now and may be claimed. If it was called off, it is
due now and may end. If it is dead, its object is freed.

Moves     held by this task -> free   (the task is dead)
KEYS.taken    taken:<worker>   HASH id -> "<attempt> <token>"
KEYS.record   task:<id>        HASH
KEYS.due      due              ZSET
KEYS.lock     lock:<object>    STRING of the object
KEYS.clock    clock            HASH
ARGV.id
ARGV.claim    "<attempt> <token>", as the heartbeat told it
ARGV.object?  whose lock is given; "" for none
Returns   {"acknowledged"} | {"changed"} | {"other_object", object_key}
          "other_object": the record of what is dead notes another one than was given, and nothing was changed
Cost      O(log N) in records that are due some time
]]
if redis.call('HGET', KEYS.taken, ARGV.id) ~= ARGV.claim then
  return {'changed'}
end
local found = redis.call('HMGET', KEYS.record, 'state', 'stopping', 'object')
local is_freed = found[1] == 'dead' and found[2] == ARGV.claim
if is_freed and found[3] and found[3] ~= ARGV.object then
  return {'other_object', found[3]}
end
redis.call('HDEL', KEYS.taken, ARGV.id)
if found[2] == ARGV.claim then
  redis.call('HDEL', KEYS.record, 'stopping', 'stopping_on')
  if found[1] ~= 'parked' and found[1] ~= 'dead' then
    redis.call('ZADD', KEYS.due, now_ms, ARGV.id)
  end
end
if is_freed and ARGV.object ~= '' then
  redis.call('HDEL', KEYS.record, 'object')
  if string.match(redis.call('GET', KEYS.lock) or '', '^%d+:(.*)$') == ARGV.id then
    redis.call('DEL', KEYS.lock)
  end
end
return {'acknowledged'}
